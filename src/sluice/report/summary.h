#pragma once
#include <string>

namespace sluice {

namespace exe {
struct Executable;
}

namespace report {

/// Describes a plan in at most 25 lines: whether it fits, the holders of each memory's bytes, and
/// the bytes that a run moves.
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
