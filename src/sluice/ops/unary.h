#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct EluOptions {
  double alpha = 1;
  static auto fields(auto&& use) {
    return use(field("alpha", &EluOptions::alpha, "The limit at -∞ is -alpha."));
  }
};

struct LeakyReluOptions {
  double slope = 0.01;
  static auto fields(auto&& use) {
    return use(field("slope", &LeakyReluOptions::slope, "Slope below 0."));
  }
};

const OpDef& floor_def();
const OpDef& rsqrt_def();
const OpDef& erf_def();
const OpDef& softplus_def();

/// Elementwise functions of floating-point tensors. The result has the dtype of x.

/// Round x down, up, toward zero, and to the nearest integer with ties to even. They pass no
/// gradient.
Tensor floor(TensorArg x);
Tensor ceil(TensorArg x);
Tensor trunc(TensorArg x);
Tensor round(TensorArg x);
/// 1 for positive x, -1 for negative x, x itself for zeros and NaN. It passes no gradient.
Tensor sign(TensorArg x);

/// 1/√x.
Tensor rsqrt(TensorArg x);
/// x².
Tensor square(TensorArg x);
/// The error function 2/√π ∫₀ˣ e^(-t²) dt.
Tensor erf(TensorArg x);
/// The logarithm to base 2.
Tensor log2(TensorArg x);
/// ln(1 + x), accurate near 0.
Tensor log1p(TensorArg x);
/// eˣ - 1, accurate near 0.
Tensor expm1(TensorArg x);

/// ln(1 + eˣ).
Tensor softplus(TensorArg x);
/// x where x > 0, else alpha·(eˣ - 1).
Tensor elu(TensorArg x, double alpha = 1);
/// x where x > 0, else slope·x.
Tensor leaky_relu(TensorArg x, double slope = 0.01);
/// (x + 3)/6 within [0, 1].
Tensor hard_sigmoid(TensorArg x);
/// x·hard_sigmoid(x).
Tensor hard_swish(TensorArg x);
/// x·tanh(softplus(x)).
Tensor mish(TensorArg x);

/// Elementwise trigonometric and hyperbolic functions of floating-point tensors. Angles are in
/// radians; they may be of any size. The result has the dtype of the operands. It is NaN outside of
/// the domain of a function. tanh() is in activations.h.

Tensor sin(TensorArg x);
Tensor cos(TensorArg x);
Tensor tan(TensorArg x);
/// The angle from -π/2 to π/2 whose sine is x, and that from 0 to π whose cosine is x, for |x| ≤ 1.
Tensor asin(TensorArg x);
Tensor acos(TensorArg x);
Tensor atan(TensorArg x);
/// The angle of the point (x, y), from -π to π, as std::atan2.
Tensor atan2(TensorArg y, TensorArg x);
/// (eˣ − e⁻ˣ) / 2 and (eˣ + e⁻ˣ) / 2.
Tensor sinh(TensorArg x);
Tensor cosh(TensorArg x);
/// The number whose hyperbolic sine is x.
Tensor asinh(TensorArg x);
/// The number from 0 on whose hyperbolic cosine is x, for x ≥ 1.
Tensor acosh(TensorArg x);
/// The number whose hyperbolic tangent is x, for |x| ≤ 1; ±∞ at ±1.
Tensor atanh(TensorArg x);

}  // namespace sluice::ops
