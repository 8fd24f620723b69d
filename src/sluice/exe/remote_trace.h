#pragma once
#include <cstdint>

/// The rules of exe::RemoteTrace for long loops, beyond those of exe/executable.h. A loop is long
/// if it has no condition and all its iterations together make more than kLongLoop transfers with
/// remote buffers, those of callees and of both arms of branches included.
///
///     activation     of any iteration of a long loop: i is 0
///     seen(e)        mix(content(e), i - j) if content(e) was set in iteration j of a running long
///                    loop that is in iteration i, the innermost one; else content(e)
///     load, store    a load of e, a dynamic store, `all` and the arms of a branch use seen(e) in
///                    place of content(e). Where arms differ, mix(then, else) is set now
///     sum            a long loop has a sum of its own, which begins as 0. Each iteration ends with
///                    sum = sum * 0x9e3779b97f4a7c15 + its loads. After n iterations the sum is
///                    added to the one around the loop, and content(e) = seen(e) with i = n for
///                    each e set in the loop, which counts as set in the iteration around it
///
/// So the digest of iterations that are alike has a closed form, and each iteration keeps its
/// position in the digest.
namespace sluice::exe {

inline constexpr int64_t kLongLoop = 65'536;

}  // namespace sluice::exe
