#pragma once
#include <string>
#include <variant>
#include <vector>

#include "sluice/ops/op.h"

namespace sluice::ops {

/// A hyperparameter argument of an operator function: a number, or a scalar tensor of a
/// floating-point dtype.
class HyperArg {
 public:
  HyperArg(double value) : value_(value) {}  // NOLINT: implicit
  HyperArg(Tensor tensor,
           std::source_location where = std::source_location::current())  // NOLINT: implicit
      : value_(TensorArg(std::move(tensor), where)) {}

  /// The tensor; null if the argument is a number.
  const TensorArg* tensor() const { return std::get_if<TensorArg>(&value_); }
  double number() const { return std::get<double>(value_); }

 private:
  std::variant<double, TensorArg> value_;
};

/// Collects the operands and options of an op with hyperparameters. A number becomes a field of the
/// options. A tensor becomes an operand, and option `operands` lists its name.
class HyperArgs {
 public:
  explicit HyperArgs(std::vector<TensorArg> operands) : inputs(std::move(operands)) {}

  /// Adds hyperparameter `name`. Returns the value of that field in the options struct: the number,
  /// or `otherwise` if the argument is a tensor.
  double add(const std::string& name, const HyperArg& arg, double otherwise = 0) {
    if (arg.tensor() == nullptr) return arg.number();
    inputs.push_back(*arg.tensor());
    operands += (operands.empty() ? "" : ",") + name;
    return otherwise;
  }

  std::vector<TensorArg> inputs;
  std::string operands;
};

}  // namespace sluice::ops
