#pragma once
#include <cstdint>

namespace sluice::check {

/// a + b of numbers that are not negative; INT64_MAX if that is less.
inline int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/// a · b likewise.
inline int64_t saturating_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

}  // namespace sluice::check
