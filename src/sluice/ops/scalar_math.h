#pragma once
#include <cmath>
#include <type_traits>

#include "sluice/base/numbers/simd_math.h"

namespace sluice::ops::math {

/// Functions of one element for reference kernels. In float they run one lane of the vector
/// functions, which defines the bits. In double they call the standard library.

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

/// The larger of a and b; NaN if one of them is NaN. `a` may be a partial result.
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
