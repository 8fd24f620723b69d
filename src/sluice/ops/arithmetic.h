#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

const OpDef& add_def();
const OpDef& sub_def();
const OpDef& mul_def();
const OpDef& div_def();
const OpDef& pow_def();
const OpDef& maximum_def();
const OpDef& minimum_def();
const OpDef& neg_def();
const OpDef& abs_def();
const OpDef& sqrt_def();
const OpDef& exp_def();
const OpDef& log_def();

/// Elementwise with numpy's broadcasting; operands share one dtype (cast first: there is no
/// promotion). Integers wrap around.
Tensor add(TensorArg lhs, TensorArg rhs);
Tensor sub(TensorArg lhs, TensorArg rhs);
Tensor mul(TensorArg lhs, TensorArg rhs);
/// Integers: the floor of the quotient; x / 0 is 0.
Tensor div(TensorArg lhs, TensorArg rhs);
/// lhs += rhs, rhs broadcast to lhs's shape; the result is a new handle to lhs's storage.
Tensor add_(TensorArg lhs, TensorArg rhs);
/// base to the power `exponent`; floating point. The gradient of base is 0 where the exponent is 0.
/// The gradient of the exponent is 0 where base is 0 and the exponent is not negative, and NaN where
/// base < 0.
Tensor pow(TensorArg base, TensorArg exponent);
Tensor pow(TensorArg base, double exponent);
/// The largest (smallest) of one or more tensors; NaN where one is. The gradient goes to the first
/// that is largest.
Tensor maximum(TensorArg a, TensorArg b);
Tensor maximum(const std::vector<TensorArg>& ts);
Tensor minimum(TensorArg a, TensorArg b);
Tensor minimum(const std::vector<TensorArg>& ts);

Tensor neg(TensorArg x);
Tensor abs(TensorArg x);
/// Floating point only, from here on.
Tensor sqrt(TensorArg x);
Tensor exp(TensorArg x);
Tensor exp_(TensorArg x);
/// Natural logarithm.
Tensor log(TensorArg x);

/// A constant of t's dtype and shape () in t's graph. Error{kUsage} for a value that the dtype does
/// not take: a fraction beside integers, a number out of its range, a finite number that would
/// become infinite.
Tensor scalar_like(const Tensor& t, double value);

}  // namespace sluice::ops

namespace sluice {

Tensor operator+(TensorArg a, TensorArg b);
Tensor operator-(TensorArg a, TensorArg b);
Tensor operator*(TensorArg a, TensorArg b);
Tensor operator/(TensorArg a, TensorArg b);
Tensor operator-(TensorArg x);
/// A number becomes a constant of the tensor's dtype and shape ().
Tensor operator+(TensorArg a, double b);
Tensor operator-(TensorArg a, double b);
Tensor operator*(TensorArg a, double b);
Tensor operator/(TensorArg a, double b);
Tensor operator+(double a, TensorArg b);
Tensor operator-(double a, TensorArg b);
Tensor operator*(double a, TensorArg b);
Tensor operator/(double a, TensorArg b);
/// Updates a's storage in place (`ops::add_`) and makes `a` the new handle.
Tensor& operator+=(Tensor& a, TensorArg b);

}  // namespace sluice
