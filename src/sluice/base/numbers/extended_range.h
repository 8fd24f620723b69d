#pragma once
#include <cmath>
#include <limits>
#include <type_traits>

#include "sluice/base/simd.h"

/// Sums of squares in extended range: numbers from 0 to 2^288 in a float32. x >= 0 represents x. A
/// number that overflows float32 is stored as x < 0 and represents -x·2^160. Sums that do not
/// overflow have the bits of a plain float32 sum. Infinities and NaN represent themselves.
namespace sluice::simd {

/// Returns x² in extended range.
template <Vector V>
V square_extended(V x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const V square = x * x;
  const V scaled = x * 0x1p-80f;
  return select((square == kInfinity) & (abs(x) < kInfinity), -(scaled * scaled), square);
}

/// Returns a + b, all in extended range.
template <Vector V>
V add_extended(V a, V b) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const V sum = a + b;
  // 2^-160 is not a float32. A summand that becomes denormal or 0 here is below half a unit in the
  // last place of the sum.
  const auto scaled = [](V x) { return select(x < 0.0f, -x, x * 0x1p-80f * 0x1p-80f); };
  const V wide = -(scaled(a) + scaled(b));
  const auto fits = (a >= 0.0f) & (b >= 0.0f) & (sum < kInfinity);
  const auto finite = (abs(a) < kInfinity) & (abs(b) < kInfinity);
  return select(fits, sum, select(finite, wide, abs(a) + abs(b)));
}

/// Returns the square root of a number in extended range as a plain float32. If it is finite, it is
/// at most the largest float32.
template <Vector V>
V sqrt_extended(V x) {
  const V wide = min(sqrt(-x) * 0x1p80f, V(std::numeric_limits<float>::max()));
  return select(x < 0.0f, wide, sqrt(x));
}

}  // namespace sluice::simd

namespace sluice {

/// Return the number that x represents, and x for a number >= 0, in double.
inline double from_extended(double x) { return x < 0 ? std::ldexp(-x, 160) : x; }
inline double to_extended(double number) {
  const bool fits = !(number > static_cast<double>(std::numeric_limits<float>::max()));
  return fits || std::isinf(number) ? number : -std::ldexp(number, -160);
}

/// Return x² and a + b in extended range, for float and double.
inline float square_extended(float x) { return simd::square_extended(simd::F1(x)).v; }
inline double square_extended(double x) { return to_extended(x * x); }
template <typename T>
T add_extended(T a, T b) {
  if constexpr (std::is_same_v<T, float>)
    return simd::add_extended(simd::F1(a), simd::F1(b)).v;
  else
    return to_extended(from_extended(a) + from_extended(b));
}

}  // namespace sluice
