#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

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
