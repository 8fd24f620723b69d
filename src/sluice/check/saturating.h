#pragma once
#include <cstdint>

namespace sluice::check {

/// Returns a + b for non-negative numbers, or INT64_MAX if the sum is larger.
inline int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/// Returns a · b for non-negative numbers, or INT64_MAX if the product is larger.
inline int64_t saturating_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

}  // namespace sluice::check
