#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

/// Makes system calls fail on purpose, so that tests can cover the handling of these errors.
namespace sluice::sys {

/// Selects a system call and the way in which it fails.
struct Failpoint {
  std::string call = "any";  ///< "open", "pread", "pwrite", …, or "any" for every call.
  int64_t number = 1;        ///< Number of the failing call among the selected calls, from 1.
  int code = 0;  ///< errno (callers retry EINTR and then succeed); 0: only half the bytes move.
};

/// Parses CALL@NUMBER=CODE: "pwrite@3=ENOSPC", "any@17=EIO", "pread@2=EINTR", "pwrite@1=short".
/// Error{kUsage} for any other text.
Failpoint parse_failpoint(const std::string& text);

/// Arms a failpoint, which replaces the previous one, and resets the count of calls to 0.
void set_failpoint(const Failpoint& failpoint);
void clear_failpoint();
/// Number of calls that the failpoint selects, counted since it was set.
int64_t failpoint_calls();

namespace internal {

/// Counts a system call. Returns true and sets errno if this call must fail. Halves `bytes` if this
/// transfer must be short. The first use arms the failpoint in the environment variable
/// SLUICE_FAILPOINT.
bool fails(const char* call, size_t* bytes = nullptr);

}  // namespace internal
}  // namespace sluice::sys
