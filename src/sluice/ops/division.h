#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

/// Elementwise remainders of numbers of one dtype, whose shapes broadcast. Those of floating-point
/// numbers are exact before the last addition. An integer divided by 0 has the remainder 0.

/// lhs - rhs·trunc(lhs / rhs): has the sign of lhs, as std::fmod.
Tensor fmod(TensorArg lhs, TensorArg rhs);
Tensor fmod(TensorArg lhs, double rhs);
/// lhs - rhs·floor(lhs / rhs): has the sign of rhs, as numpy.remainder.
Tensor remainder(TensorArg lhs, TensorArg rhs);
Tensor remainder(TensorArg lhs, double rhs);

}  // namespace sluice::ops
