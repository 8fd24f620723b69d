#pragma once
#include <cstdint>

namespace sluice::test {

/// Notes whether the calling thread makes a system call while this lives, and which: the first one. Later ones are let
/// through uncounted.
class SystemCallWatch {
 public:
  SystemCallWatch();
  ~SystemCallWatch();
  SystemCallWatch(const SystemCallWatch&) = delete;
  SystemCallWatch& operator=(const SystemCallWatch&) = delete;

  /// Whether this system and this build can.
  bool works() const { return works_; }
  /// The number of the call (syscall(2)); -1: there was none.
  int64_t found() const;

 private:
  bool works_ = false;
};

}  // namespace sluice::test
