#pragma once
#include <cstdint>
#include <limits>

#include "sluice/base/simd.h"

/// exp, log, tanh, erf and activation functions over any vector type of simd.h. Every vector type
/// computes the same bits. The functions accept every input: NaN returns NaN, and limits are exact
/// (exp(-inf) = 0, log(0) = -inf, tanh(inf) = 1). Results below 2^-126 are denormal, or zero where
/// the thread flushes denormals.
///
/// The comment of a function states its maximum error in units in the last place (ULP) of the
/// result. simd_math_test.cc measures it against libm in double, over dense sweeps of the domain.
/// The polynomials are our own minimax fits (Lawson's weighted least squares in 120 bits). The
/// coefficients are rounded one by one; after each, the remaining ones are fitted again.
namespace sluice::simd {

/// Computes c₀ + c₁x + … by Horner's rule, with one fused multiply-add per step. The coefficients
/// are passed from the highest degree down.
template <Vector V>
V polynomial(V, V c) {
  return c;
}
template <Vector V, typename... Cs>
V polynomial(V x, V high, float next, Cs... rest) {
  return polynomial(x, fma(high, x, next), rest...);
}

/// Computes x·2ⁿ, rounded once. n is a whole number from -150 to 128.
template <Vector V>
V scale(V x, V n) {
  // Multiply by two powers of two, because one exponent field cannot hold every n.
  const typename V::Int whole = to_int(n);
  const typename V::Int half = shift_right<1>(whole);
  const auto power_of_two = [](typename V::Int k) { return from_bits(shift_left<23>(k + 127)); };
  return x * power_of_two(half) * power_of_two(whole - half);
}

/// Returns the r of x = n·ln 2 + r, |r| <= ln 2 / 2, for |x| < 128.
template <Vector V>
V split_exponent(V x, V& n) {
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  n = fma(x, 0x1.715476p0f, kRound) - kRound;
  return fma(n, -0x1.7f7d1cp-20f, fma(n, -0x1.62e4p-1f, x));
}

/// eʳ - 1 for |r| <= ln 2 / 2.
template <Vector V>
V exp_of_rest(V r) {
  const V p = polynomial(r, V(0x1.6a4d78p-10f), 0x1.12398ep-7f, 0x1.5558bp-5f, 0x1.555492p-3f,
                         0x1.fffffcp-2f);
  return fma(r * r, p, r);
}

/// Returns the m in [√½, √2) of x = 2ᵉ·m, for x > 0.
template <Vector V>
V split_power(V x, V& e) {
  using Int = typename V::Int;
  const auto denormal = x < 0x1p-126f;
  const Int offset = bits(select(denormal, x * 0x1p23f, x)) - Int(0x3f3504f3);
  e = to_float(shift_right<23>(offset)) + select(denormal, V(-23.0f), V(0.0f));
  return from_bits((offset & Int(0x007fffff)) + Int(0x3f3504f3));
}

/// eˣ, 1.0 ULP. The result is inf from 88.7229 up and zero below -103.97.
template <Vector V>
V exp(V x) {
  V n;
  const V r = split_exponent(max(V(-104.0f), min(V(89.0f), x)), n);
  return scale(exp_of_rest(r) + 1.0f, n);
}

/// The p of ln(1 + f) = f - f²/2 + f³·p for f in [√½ - 1, √2 - 1).
template <Vector V>
V log_series(V f) {
  return polynomial(f, V(0x1.13c372p-4f), -0x1.dda1bp-4f, 0x1.e6df82p-4f, -0x1.fc3d26p-4f,
                    0x1.233acp-3f, -0x1.555b9p-3f, 0x1.99a47ap-3f, -0x1.000008p-2f, 0x1.555548p-2f);
}

/// Natural logarithm, 0.8 ULP. log(±0) = -inf, log(x < 0) = NaN.
template <Vector V>
V log(V x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  V e;
  const V f = split_power(x, e) - 1.0f;
  const V square = f * f;
  V low = f * square * log_series(f);
  low = fma(e, 0x1.7f7d1cp-20f, low);
  low = fma(square, -0.5f, low);
  V result = fma(e, 0x1.62e4p-1f, f + low);
  result = select(x == kInfinity, x, result);
  result = select(x == 0.0f, V(-kInfinity), result);
  return select(x >= 0.0f, result, V(std::numeric_limits<float>::quiet_NaN()));
}

/// Logarithm to base 2, 1.1 ULP. log2(2ⁿ) = n. Same limits as log.
template <Vector V>
V log2(V x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  V e;
  const V f = split_power(x, e) - 1.0f;
  const V square = f * f;
  // ln(1 + f) = f + low, times log₂(e) as two floats.
  const V low = fma(f * square, log_series(f), square * -0.5f);
  const V product = f * 0x1.715476p0f;
  const V rest = fma(f, V(0x1.715476p0f), -product) + fma(low, 0x1.715476p0f, f * 0x1.4ae0cp-26f);
  V result = e + product;
  result = result + ((product - (result - e)) + rest);
  result = select(x == kInfinity, x, result);
  result = select(x == 0.0f, V(-kInfinity), result);
  return select(x >= 0.0f, result, V(std::numeric_limits<float>::quiet_NaN()));
}

/// eˣ - 1, 1.5 ULP.
template <Vector V>
V expm1(V x) {
  V n;
  const V small = exp_of_rest(split_exponent(max(V(-30.0f), min(V(88.0f), x)), n));
  // eˣ - 1 = 2ⁿ·(eʳ - 1) + (2ⁿ - 1).
  const V power = scale(V(1.0f), n);
  return select(x > 88.0f, exp(x), select(n == 0.0f, small, fma(power, small, power - 1.0f)));
}

/// ln(1 + x), 2 ULP. log1p(-1) = -inf, log1p(x < -1) = NaN.
template <Vector V>
V log1p(V x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // 1 + x is rounded to u; the rest adds (1 + x - u) / u to the logarithm.
  const V u = x + 1.0f;
  const V result = log(u) + (x - (u - 1.0f)) / u;
  return select((x == kInfinity) | (x == 0.0f), x, select(u == 0.0f, V(-kInfinity), result));
}

/// Hyperbolic tangent, 1.4 ULP.
template <Vector V>
V tanh(V x) {
  const V t = abs(x);
  const V s = x * x;
  const V p = polynomial(s, V(-0x1.758facp-8f), 0x1.5211c4p-6f, -0x1.b838ap-5f, 0x1.110704p-3f,
                         -0x1.555532p-2f);
  const V small = fma(s * x, p, x);
  const V large = 1.0f - V(2.0f) / (exp(t + t) + 1.0f);
  return copysign(select(t < 0.625f, small, large), x);  // `small` is +0 for x = -0
}

/// The error function 2/√π ∫₀ˣ e^(-t²) dt, 1.1 ULP.
template <Vector V>
V erf(V x) {
  const V t = min(V(4.0f), abs(x));
  const V s = t * t;
  const V p = polynomial(s, V(0x1.4f966ep-14f), -0x1.a6146ap-11f, 0x1.544adp-8f, -0x1.b80122p-6f,
                         0x1.ce2d64p-4f, -0x1.812740p-2f, 0x1.06eba8p-3f);
  const V small = fma(p, x, x);
  // 1 - erf(t) = exp(-t - t·q(t))
  const V q = polynomial(t, V(0x1.8f35f4p-17f), -0x1.597deep-12f, 0x1.e0febep-9f, -0x1.8643a8p-6f,
                         0x1.b36bfep-4f, 0x1.452d34p-1f, 0x1.077e26p-3f);
  const V large = 1.0f - exp(fma(q, -t, -t));
  return select(t < 0.9375f, small, copysign(large, x));
}

/// xʸ as std::pow, with its special cases. 3.1 ULP; 1.2 where |y·log₂ x| < 16. The logarithm and
/// its product with y are sums of two floats: an exponent near 128 has an absolute error of 2⁻²⁴
/// only if these have 31 bits.
template <Vector V>
V pow(V x, V y) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const V one(1.0f), zero(0.0f), size = abs(x);
  V e;
  const V m = split_power(size, e);
  // log₂ m = 2·log₂(e)·(s + s³/3 + s⁵/5 + …) with s = (m - 1) / (m + 1).
  const V f = m - 1.0f, d = m + 1.0f;
  const V d_low = m - (d - 1.0f);
  const V s = f / d;
  const V s_low = fma(-s, d_low, fma(-s, d, f)) / d;
  const V square = s * s;
  const V series = polynomial(square, V(0x1.745d18p-4f), 0x1.c71c72p-4f, 0x1.24924ap-3f,
                              0x1.99999ap-3f, 0x1.555556p-2f);
  constexpr float kScale = 0x1.715476p1f, kScaleLow = 0x1.4ae0cp-25f;  // 2·log₂(e)
  const V t = s * kScale;
  const V t_low =
      fma(s, V(kScaleLow), fma(s, V(kScale), -t)) + kScale * fma(s * square, series, s_low);
  const V sum = e + t;
  const V rest = (t - (sum - e)) + t_low;
  const V log_high = sum + rest;
  const V log_low = rest - (log_high - sum);
  // y·log₂|x|, limited to where the result is 0 or infinite.
  const V product = y * log_high;
  const V limited = max(V(-160.0f), min(V(129.0f), product));
  const V low = select(limited == product, fma(y, log_high, -product) + y * log_low, zero);
  const V n = round_nearest(limited);
  const V r = ((limited - n) + low) * 0x1.62e43p-1f;
  V result = scale(exp_of_rest(r) + 1.0f, max(V(-150.0f), n));
  result = select(n < -150.0f, zero, result);
  // Zeros and infinities.
  const auto grows = y > 0.0f;
  result = select(size == 0.0f, select(grows, zero, V(kInfinity)), result);
  result = select(size == kInfinity, select(grows, V(kInfinity), zero), result);
  // Infinite exponents.
  const auto larger = size > 1.0f;
  const V limit =
      select(larger, select(grows, V(kInfinity), zero), select(grows, zero, V(kInfinity)));
  result = select(abs(y) == kInfinity, select(size == 1.0f, one, limit), result);
  // Negative bases.
  const auto whole = trunc(y) == y;
  const auto odd = whole & (trunc(y * 0.5f) * 2.0f != y);
  const V nan(std::numeric_limits<float>::quiet_NaN());
  result = select((x < 0.0f) & !whole & (size < kInfinity), nan, result);
  result = select(odd, copysign(result, x), result);
  result = select(is_nan(x) | is_nan(y), x + y, result);
  return select((y == 0.0f) | (x == 1.0f), one, result);
}

/// x - y·trunc(x / y) without rounding, with the sign of x, as std::fmod.
template <Vector V>
V fmod(V x, V y) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const V size = abs(x), divisor = abs(y);
  const V quotient = size / divisor;
  V rest = fma(-trunc(quotient), divisor, size);
  // The quotient was rounded up to a whole number.
  rest = select(rest < 0.0f, rest + divisor, rest);
  // These quotients may differ from the exact ones by more than 1, or the rest may be denormal.
  constexpr float kLarge = 0x1p23f, kTiny = 0x1p-100f;
  if (any(((quotient >= kLarge) | (divisor < kTiny)) & (divisor > 0.0f) & (size < kInfinity))) {
    float xs[V::kLanes], ys[V::kLanes], rests[V::kLanes];
    size.store(xs);
    divisor.store(ys);
    rest.store(rests);
    for (int i = 0; i < V::kLanes; ++i) {
      if ((xs[i] / ys[i] >= kLarge || ys[i] < kTiny) && ys[i] > 0.0f && xs[i] < kInfinity)
        rests[i] = std::fmod(xs[i], ys[i]);
    }
    rest = V::load(rests) + 0.0f;  // Flushes denormals if the thread does.
  }
  // The selection keeps denormals. It follows the exact path, which flushes those of all lanes.
  rest = select((divisor == kInfinity) & (size < kInfinity), size, rest);
  return select(is_nan(x) | is_nan(y), x + y, copysign(rest, x));
}

/// 1 / (1 + e⁻ˣ), 2.5 ULP; zero below -88.73.
template <Vector V>
V sigmoid(V x) {
  return V(1.0f) / (exp(-x) + 1.0f);
}

/// σ(2u) with u = √(2/π)·(x + 0.044715·x³): the factor of x in the tanh approximation of GELU.
template <Vector V>
V gelu_gate(V x) {
  return sigmoid(x * fma(x * x, 0x1.2444f2p-4f, 0x1.988454p0f));  // 2√(2/π)·(0.044715·x², 1)
}

/// The tanh approximation of GELU: x·σ(2u) = x/2·(1 + tanh u).
template <Vector V>
V gelu_tanh(V x) {
  return x * gelu_gate(x);
}

/// erf(x/√2), the `gate` of gelu_erf.
template <Vector V>
V gelu_erf_gate(V x) {
  return erf(x * 0x1.6a09e6p-1f);
}

/// Exact GELU: x/2·(1 + erf(x/√2)). `gate` is gelu_erf_gate(x).
template <Vector V>
V gelu_erf(V x, V gate) {
  return 0.5f * x * (gate + 1.0f);
}
template <Vector V>
V gelu_erf(V x) {
  return gelu_erf(x, gelu_erf_gate(x));
}

}  // namespace sluice::simd
