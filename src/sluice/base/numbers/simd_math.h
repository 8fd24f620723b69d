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

/// eˣ, 1.0 ULP. The result is inf from 88.7229 up and zero below -103.97.
template <Vector V>
V exp(V x) {
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  const V clamped = max(V(-104.0f), min(V(89.0f), x));
  const V shifted = fma(clamped, 0x1.715476p0f, kRound);
  const V n = shifted - kRound;
  V r = fma(n, -0x1.62e4p-1f, clamped);
  r = fma(n, -0x1.7f7d1cp-20f, r);
  const V p = polynomial(r, V(0x1.6a4d78p-10f), 0x1.12398ep-7f, 0x1.5558bp-5f, 0x1.555492p-3f,
                         0x1.fffffcp-2f);
  const V mantissa = fma(r * r, p, r) + 1.0f;
  return scale(mantissa, n);
}

/// Natural logarithm, 0.8 ULP. log(±0) = -inf, log(x < 0) = NaN.
template <Vector V>
V log(V x) {
  using Int = typename V::Int;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto denormal = x < 0x1p-126f;
  const V scaled = select(denormal, x * 0x1p23f, x);
  // x = 2ᵉ·(1 + f) with 1 + f in [√½, √2).
  const Int offset = bits(scaled) - Int(0x3f3504f3);
  const V e = to_float(shift_right<23>(offset)) + select(denormal, V(-23.0f), V(0.0f));
  const V f = from_bits((offset & Int(0x007fffff)) + Int(0x3f3504f3)) - 1.0f;
  const V p =
      polynomial(f, V(0x1.13c372p-4f), -0x1.dda1bp-4f, 0x1.e6df82p-4f, -0x1.fc3d26p-4f,
                 0x1.233acp-3f, -0x1.555b9p-3f, 0x1.99a47ap-3f, -0x1.000008p-2f, 0x1.555548p-2f);
  const V square = f * f;
  V low = f * square * p;
  low = fma(e, 0x1.7f7d1cp-20f, low);
  low = fma(square, -0.5f, low);
  V result = fma(e, 0x1.62e4p-1f, f + low);
  result = select(x == kInfinity, x, result);
  result = select(x == 0.0f, V(-kInfinity), result);
  return select(x >= 0.0f, result, V(std::numeric_limits<float>::quiet_NaN()));
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
