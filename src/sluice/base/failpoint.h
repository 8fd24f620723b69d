#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

/// System calls made to fail on purpose, for tests of what then happens.
namespace sluice::sys {

/// Which call fails, and how.
struct Failpoint {
  std::string call = "any";  ///< "open", "pread", "pwrite", …, or any of them.
  int64_t number = 1;        ///< From 1, of the calls of that kind.
  int code =
      0;  ///< errno; EINTR is retried, so the call succeeds in the end. 0: half the bytes move.
};

/// "pwrite@3=ENOSPC", "any@17=EIO", "pread@2=EINTR", "pwrite@1=short". Error{kUsage} for anything else.
Failpoint parse_failpoint(const std::string& text);

/// Arms a failpoint in place of the one before; counting starts again.
void set_failpoint(const Failpoint& failpoint);
void clear_failpoint();
/// Calls counted since it was set: all, or those of its kind.
int64_t failpoint_calls();

namespace internal {

/// Counts a call. True, with errno set, if it is to fail; `bytes` is halved if it is to be short. The first call arms what the
/// environment's SLUICE_FAILPOINT says.
bool fails(const char* call, size_t* bytes = nullptr);

}  // namespace internal
}  // namespace sluice::sys
