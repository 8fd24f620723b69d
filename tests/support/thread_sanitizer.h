#pragma once

namespace sluice::test {

/// Whether the thread sanitizer watches this build, which makes it ten times as slow. Tests that
/// repeat one thing many times then repeat it less often.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace sluice::test
