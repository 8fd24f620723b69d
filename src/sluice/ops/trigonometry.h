#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

/// Elementwise trigonometric functions of floating-point tensors. Angles are in radians; they may
/// be of any size. The result has the dtype of the operands.

Tensor sin(TensorArg x);
Tensor cos(TensorArg x);
Tensor tan(TensorArg x);
Tensor atan(TensorArg x);
/// The angle of the point (x, y), from -π to π, as std::atan2.
Tensor atan2(TensorArg y, TensorArg x);

}  // namespace sluice::ops
