#pragma once
#include "sluice/base/numbers/quarter_turns.h"
#include "sluice/base/numbers/simd_math.h"

/// Trigonometric and hyperbolic functions over any vector type of simd.h. The rules of simd_math.h
/// hold. Angles are in radians, of any size. The sine, cosine and tangent of an infinite angle are
/// NaN, and so is the result outside of a function's domain.
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

/// The p of asin(r) = r + r³·p for r² = s in [0, 0.36].
template <Vector V>
V arc_sine_series(V s) {
  return polynomial(s, V(0x1.c6b236p-5f), -0x1.b4b5bap-7f, 0x1.0c8d42p-5f, 0x1.d36a34p-6f,
                    0x1.6f2062p-5f, 0x1.332b56p-4f, 0x1.555564p-3f);
}

/// Arc sine, 1.4 ULP. For |x| > 0.6 it is π/2 - 2·asin(√((1 - |x|) / 2)).
template <Vector V>
V asin(V x) {
  const V size = abs(x);
  const auto large = size > 0.6f;
  const V square = select(large, (1.0f - size) * 0.5f, x * x);
  const V root = select(large, sqrt(square), size);
  const V part = fma(root * square, arc_sine_series(square), root);
  return copysign(select(large, (0x1.921fb6p0f - (part + part)) - 0x1.777a5cp-25f, part), x);
}

/// Arc cosine, 1.2 ULP.
template <Vector V>
V acos(V x) {
  const V size = abs(x);
  const auto large = size > 0.6f;
  const V square = select(large, (1.0f - size) * 0.5f, x * x);
  const V root = select(large, sqrt(square), x);
  const V part = fma(root * square, arc_sine_series(square), root);
  const V twice = part + part;
  const V left = (0x1.921fb6p1f - twice) - 0x1.777a5cp-24f;
  const V middle = (0x1.921fb6p0f - part) - 0x1.777a5cp-25f;
  return select(large, select(x < 0.0f, left, twice), middle);
}

/// eᵗ / 2 for t >= 0, infinite where that is beyond float32.
template <Vector V>
V half_of_exp(V t) {
  V n;
  const V r = split_exponent(min(V(89.5f), t), n);
  return scale(exp_of_rest(r) + 1.0f, n - 1.0f);
}

/// Hyperbolic sine, 1.7 ULP.
template <Vector V>
V sinh(V x) {
  const V t = abs(x), s = x * x;
  const V p = polynomial(s, V(0x1.756c1ep-19f), 0x1.a022bcp-13f, 0x1.1110ep-7f, 0x1.555556p-3f);
  const V half = half_of_exp(t);
  return copysign(select(t < 1.0f, fma(s * t, p, t), half - V(0.25f) / half), x);
}

/// Hyperbolic cosine, 1.5 ULP.
template <Vector V>
V cosh(V x) {
  const V half = half_of_exp(abs(x));
  return half + V(0.25f) / half;
}

/// Inverse hyperbolic sine, 1.6 ULP.
template <Vector V>
V asinh(V x) {
  const V t = abs(x), s = x * x;
  const V p = polynomial(s, V(0x1.615c9ep-11f), -0x1.f71c96p-9f, 0x1.55cc4p-7f, -0x1.3a476cp-6f,
                         0x1.e29cap-6f, -0x1.6c71d8p-5f, 0x1.3325bcp-4f, -0x1.555524p-3f);
  const V root = sqrt(fma(t, t, 1.0f));
  const V sum = root + t;
  const auto huge = t > 0x1p60f;  // s may be infinite.
  const V large = log(select(huge, t, sum));
  // The rest of the sum adds rest / sum to the logarithm, and 1 / sum is root - t.
  const V y = select(huge, large + 0x1.62e43p-1f, fma(t - (sum - root), root - t, large));
  return copysign(select(t < 1.0f, fma(s * t, p, t), y), x);
}

/// Inverse hyperbolic cosine, 1.6 ULP. acosh(x < 1) = NaN.
template <Vector V>
V acosh(V x) {
  const V d = x - 1.0f;
  // acosh(1 + d) = √2d·(1 + d·p).
  const V p = polynomial(d, V(-0x1.c1c132p-16f), 0x1.6f6888p-13f, -0x1.4afc7ap-11f, 0x1.ea6322p-10f,
                         -0x1.6d4a16p-8f, 0x1.33302ep-6f, -0x1.55554ep-4f);
  const V root = sqrt(d + d);
  const auto huge = x > 0x1p60f;  // x² may be infinite.
  const V large = log(select(huge, x, x + sqrt(fma(x, x, -1.0f))));
  const V y = select(huge, large + 0x1.62e43p-1f, large);
  return select(x > 2.0f, y, fma(root, d * p, root));
}

/// Inverse hyperbolic tangent, 1.4 ULP. atanh(±1) = ±inf.
template <Vector V>
V atanh(V x) {
  const V t = abs(x), s = x * x;
  const V p = polynomial(s, V(0x1.6936acp-3f), 0x1.a6c3d4p-5f, 0x1.e3ff44p-4f, 0x1.234d9ep-3f,
                         0x1.99a676p-3f, 0x1.55554p-2f);
  const V large = log((t + 1.0f) / (1.0f - t)) * 0.5f;
  return copysign(select(t < 0.5f, fma(s * t, p, t), large), x);
}

}  // namespace sluice::simd
