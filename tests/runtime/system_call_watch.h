#pragma once
#include <cstdint>

namespace sluice::test {

/// Records the first system call that the calling thread makes while this object exists. Does not
/// count later calls.
class SystemCallWatch {
 public:
  SystemCallWatch();
  ~SystemCallWatch();
  SystemCallWatch(const SystemCallWatch&) = delete;
  SystemCallWatch& operator=(const SystemCallWatch&) = delete;

  /// Returns whether this system and this build support the watch.
  bool works() const { return works_; }
  /// Returns the number of the call (syscall(2)), or -1 without a call.
  int64_t found() const;

 private:
  bool works_ = false;
};

}  // namespace sluice::test
