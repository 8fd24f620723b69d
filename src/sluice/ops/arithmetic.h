#pragma once
#include <source_location>
#include <vector>

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

/// Elementwise functions with numpy's broadcasting. Operands must have one dtype; there is no
/// promotion, so cast first. Integers wrap around.
Tensor add(TensorArg lhs, TensorArg rhs);
Tensor sub(TensorArg lhs, TensorArg rhs);
Tensor mul(TensorArg lhs, TensorArg rhs);
/// For integers: the floor of the quotient, and 0 for x / 0.
Tensor div(TensorArg lhs, TensorArg rhs);
/// Computes lhs += rhs in place; rhs broadcasts to the shape of lhs. Returns a new handle to the
/// storage of lhs.
Tensor add_(TensorArg lhs, TensorArg rhs);
/// Raises `base` to the power `exponent`; floating point only. The gradient of base is 0 where the
/// exponent is 0. The gradient of the exponent is 0 where base is 0 and the exponent is not
/// negative, and NaN where base < 0.
Tensor pow(TensorArg base, TensorArg exponent);
/// Elementwise maximum (minimum) of one or more tensors; NaN where an operand is NaN. The gradient
/// goes to the first operand that is the maximum (minimum).
Tensor maximum(TensorArg a, TensorArg b);
Tensor maximum(const std::vector<TensorArg>& ts,
               std::source_location where = std::source_location::current());
Tensor minimum(TensorArg a, TensorArg b);
Tensor minimum(const std::vector<TensorArg>& ts,
               std::source_location where = std::source_location::current());

/// A number as an operand becomes scalar_like() of the other operand.
Tensor add(TensorArg lhs, double rhs);
Tensor add(double lhs, TensorArg rhs);
Tensor sub(TensorArg lhs, double rhs);
Tensor sub(double lhs, TensorArg rhs);
Tensor mul(TensorArg lhs, double rhs);
Tensor mul(double lhs, TensorArg rhs);
Tensor div(TensorArg lhs, double rhs);
Tensor div(double lhs, TensorArg rhs);
Tensor add_(TensorArg lhs, double rhs);
Tensor pow(TensorArg base, double exponent);
Tensor pow(double base, TensorArg exponent);
Tensor maximum(TensorArg a, double b);
Tensor maximum(double a, TensorArg b);
Tensor minimum(TensorArg a, double b);
Tensor minimum(double a, TensorArg b);

Tensor neg(TensorArg x);
Tensor abs(TensorArg x);
/// The functions below accept floating point only.
Tensor sqrt(TensorArg x);
Tensor exp(TensorArg x);
Tensor exp_(TensorArg x);
/// Natural logarithm.
Tensor log(TensorArg x);

/// Makes a constant of t's dtype and shape () in t's graph. Error{kUsage} if the dtype cannot hold
/// `value`: a fraction for integers, a number out of range, a finite number that would become
/// infinite.
Tensor scalar_like(const Tensor& t, double value);
/// Returns scalar_like(like, value) as an operand of the call that `like` is an operand of.
TensorArg scalar_arg(double value, const TensorArg& like);

const OpDef& add_n_def();

/// Adds one or more tensors of one spec, from left to right. f16 and bf16 results are rounded once.
/// `transforms::decompose_sum` replaces the op with a chain of adds.
Tensor add_n(const std::vector<TensorArg>& ts,
             std::source_location where = std::source_location::current());

struct IncrementModOptions {
  double increment = 1;
  double modulus = 1;
  static auto fields(auto&& use) {
    return use(
        required_field("increment", &IncrementModOptions::increment, "Number to add to t."),
        required_field("modulus", &IncrementModOptions::modulus, "Modulus, greater than 0."));
  }
};

const OpDef& increment_mod_def();

/// Returns (t + increment) mod modulus, in [0, modulus). For integers, both must be whole numbers
/// and the dtype must hold modulus - 1; the sum does not overflow. NaN and infinities give NaN.
Tensor increment_mod(TensorArg t, double increment, double modulus);
/// increment_mod into t's storage.
Tensor increment_mod_(TensorArg t, double increment, double modulus);

/// Elementwise remainders of numbers of one dtype, whose shapes broadcast. Those of floating-point
/// numbers are exact before the last addition. An integer divided by 0 has the remainder 0.

/// lhs - rhs·trunc(lhs / rhs): has the sign of lhs, as std::fmod.
Tensor fmod(TensorArg lhs, TensorArg rhs);
Tensor fmod(TensorArg lhs, double rhs);
/// lhs - rhs·floor(lhs / rhs): has the sign of rhs, as numpy.remainder.
Tensor remainder(TensorArg lhs, TensorArg rhs);
Tensor remainder(TensorArg lhs, double rhs);

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
/// Updates a's storage in place (`ops::add_`) and assigns the new handle to `a`.
Tensor& operator+=(Tensor& a, TensorArg b);
Tensor& operator+=(Tensor& a, double b);

}  // namespace sluice
