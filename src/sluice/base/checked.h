#pragma once
#include <cstdint>

#include "sluice/base/error.h"

namespace sluice {

/// Returns a + b; Error{kind} if the sum does not fit int64.
inline int64_t checked_add(int64_t a, int64_t b, ErrorKind kind = ErrorKind::kUsage) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) fail(kind, "size {} + {} exceeds 63 bits", a, b);
  return result;
}

/// Returns a · b; Error{kind} if the product does not fit int64.
inline int64_t checked_mul(int64_t a, int64_t b, ErrorKind kind = ErrorKind::kUsage) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) fail(kind, "size {} x {} exceeds 63 bits", a, b);
  return result;
}

/// The least multiple of `alignment` (> 0) that is at least `value` (>= 0).
inline int64_t round_up(int64_t value, int64_t alignment) {
  const int64_t rest = value % alignment;
  return rest == 0 ? value : checked_add(value, alignment - rest);
}

/// ceil(a / b) for a >= 0, b > 0.
inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace sluice
