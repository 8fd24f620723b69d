#pragma once
#include "sluice/base/numbers/quarter_turns.h"
#include "sluice/base/numbers/simd_math.h"

/// Trigonometric functions over any vector type of simd.h. The rules of simd_math.h hold. Angles
/// are in radians, of any size. The sine, cosine and tangent of an infinite angle are NaN.
namespace sluice::simd {

/// Reduces angles as quarter_turns(): returns the rest and sets `quarter` to the number of quarters
/// of a circle, which may be reduced modulo 4.
template <Vector V>
V split_angle(V x, typename V::Int& quarter) {
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  constexpr float kFar = 0x1p15f;
  const V n = fma(x, 0x1.45f306p-1f, kRound) - kRound;
  // π/2 as three floats. The first product is exact, and so is its difference to x.
  V rest = fma(n, -0x1.921fb6p0f, x);
  rest = fma(n, 0x1.777a5cp-25f, rest);
  rest = fma(n, 0x1.ee59dap-50f, rest);
  quarter = to_int(n);
  if (!any((abs(x) >= kFar) & (abs(x) < std::numeric_limits<float>::infinity()))) return rest;
  float angles[V::kLanes], rests[V::kLanes];
  int32_t quarters[V::kLanes];
  x.store(angles);
  rest.store(rests);
  quarter.store(quarters);
  for (int i = 0; i < V::kLanes; ++i) {
    if (!(std::fabs(angles[i]) >= kFar) || std::isinf(angles[i])) continue;
    const QuarterTurns far = quarter_turns(angles[i]);
    rests[i] = far.rest;
    quarters[i] = far.quarter;
  }
  quarter = V::Int::load(quarters);
  return V::load(rests);
}

/// The sine and the cosine of |r| <= π/4.
template <Vector V>
V sin_of_rest(V r) {
  const V s = r * r;
  return fma(s * r, polynomial(s, V(-0x1.991c54p-13f), 0x1.1106c6p-7f, -0x1.555544p-3f), r);
}
template <Vector V>
V cos_of_rest(V r) {
  const V s = r * r;
  const V p = polynomial(s, V(0x1.99de6ep-16f), -0x1.6c0c14p-10f, 0x1.55554ap-5f);
  return fma(s * s, p, fma(s, -0.5f, 1.0f));
}

/// The sine of a reduced angle. With quarter + 1 it is the cosine.
template <Vector V>
V sin_of_split(V rest, typename V::Int quarter) {
  const V y = select(to_float(quarter & 1) != 0.0f, cos_of_rest(rest), sin_of_rest(rest));
  return from_bits(bits(y) ^ shift_left<30>(quarter & 2));
}

/// Sine, 1.6 ULP.
template <Vector V>
V sin(V x) {
  typename V::Int quarter;
  const V rest = split_angle(x, quarter);
  return select(x == 0.0f, x, sin_of_split(rest, quarter));
}

/// Cosine, 1.6 ULP.
template <Vector V>
V cos(V x) {
  typename V::Int quarter;
  const V rest = split_angle(x, quarter);
  return sin_of_split(rest, quarter + 1);
}

/// Tangent, 3.6 ULP.
template <Vector V>
V tan(V x) {
  typename V::Int quarter;
  const V rest = split_angle(x, quarter);
  const V s = sin_of_rest(rest), c = cos_of_rest(rest);
  const auto odd = to_float(quarter & 1) != 0.0f;
  return select(x == 0.0f, x, select(odd, -c, s) / select(odd, s, c));
}

/// The arc tangent of a in [0, 1].
template <Vector V>
V atan_of_part(V a) {
  const V s = a * a;
  const V p =
      polynomial(s, V(-0x1.d4782ap-10f), 0x1.64b212p-7f, -0x1.fdefc4p-6f, 0x1.da59eap-5f,
                 -0x1.581456p-4f, 0x1.c08f2ep-4f, -0x1.2420b4p-3f, 0x1.9991e6p-3f, -0x1.55553ep-2f);
  return fma(s * a, p, a);
}

/// Arc tangent, 1.9 ULP.
template <Vector V>
V atan(V x) {
  const V size = abs(x);
  const auto steep = size > 1.0f;
  const V part = atan_of_part(select(steep, V(1.0f) / size, size));
  const V y = select(steep, (0x1.921fb6p0f - part) - 0x1.777a5cp-25f, part);
  return copysign(select(is_nan(x), x, y), x);
}

/// The angle of the point (x, y) as std::atan2, with its special cases, 3.5 ULP.
template <Vector V>
V atan2(V y, V x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const V width = abs(x), height = abs(y);
  const V large = max(width, height), small = min(width, height);
  V ratio = select(large == 0.0f, V(0.0f), small / large);
  ratio = select(small == kInfinity, V(1.0f), ratio);
  V angle = atan_of_part(ratio);
  angle = select(height > width, (0x1.921fb6p0f - angle) - 0x1.777a5cp-25f, angle);
  angle = select(copysign(V(1.0f), x) < 0.0f, (0x1.921fb6p1f - angle) - 0x1.777a5cp-24f, angle);
  return select(is_nan(x) | is_nan(y), x + y, copysign(angle, y));
}

}  // namespace sluice::simd
