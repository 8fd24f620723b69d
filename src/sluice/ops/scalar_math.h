#pragma once
#include <cmath>
#include <type_traits>

#include "sluice/base/simd_math.h"

namespace sluice::ops::math {

/// Functions of one element for reference kernels: in float one lane of the vector functions, which
/// defines the bits; in double the standard library's.

template <typename T>
T exp(T x) {
  if constexpr (std::is_same_v<T, float>)
    return simd::exp(simd::F1(x)).v;
  else
    return std::exp(x);
}

template <typename T>
T log(T x) {
  if constexpr (std::is_same_v<T, float>)
    return simd::log(simd::F1(x)).v;
  else
    return std::log(x);
}

/// The larger, NaN if either is; `a` may be a partial result.
template <typename T>
T max(T a, T b) {
  if constexpr (std::is_same_v<T, float>)
    return max_or_nan(simd::F1(a), simd::F1(b)).v;
  else
    return a != a || a > b ? a : b;
}
template <typename T>
T min(T a, T b) {
  if constexpr (std::is_same_v<T, float>)
    return min_or_nan(simd::F1(a), simd::F1(b)).v;
  else
    return a != a || a < b ? a : b;
}

}  // namespace sluice::ops::math
