#pragma once
#include <string>

namespace sluice {

namespace exe {
struct Executable;
}

namespace report {

/// Formats as text the bytes that a plan needs of each memory, the largest holders of the peak, its
/// transfers and its functions.
std::string summary(const exe::Executable& executable);

/// The plan of a session, as a user reads it. Session::plan() returns it. The executable must
/// outlive it.
class Plan {
 public:
  explicit Plan(const exe::Executable& executable) : executable_(executable) {}

  /// Returns report::summary() of the executable.
  std::string summary() const { return report::summary(executable_); }

 private:
  const exe::Executable& executable_;
};

}  // namespace report
}  // namespace sluice
