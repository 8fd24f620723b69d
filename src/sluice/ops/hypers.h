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

/// Source of a hyperparameter's value: operand `operand`, or `value` if `operand` is -1.
struct Hyper {
  std::string name;
  int operand = -1;
  double value = 0;
};

/// Returns the hyperparameters of an op, in the order of its options: each option of type double is
/// one. The hyperparameters that option `operands` names are operands, after the fixed operands and
/// in that order. Error{kUsage} for an unknown or repeated name or a missing operand.
std::vector<Hyper> hypers_of(const OpView& op);

/// For shape rules: requires that every hyperparameter operand is present and is a floating-point
/// scalar. Error{kUsage} citing `constraint` ("(C3)") otherwise.
void require_hypers(const OpView& op, std::string_view constraint);

/// For reference kernels: returns the values of the hyperparameters in the order of hypers_of.
/// Operands are arrays of T.
template <typename T>
std::vector<double> hyper_values(const KernelArgs& k) {
  std::vector<double> values;
  for (const Hyper& h : hypers_of(k.op())) {
    values.push_back(h.operand < 0 ? h.value : static_cast<double>(k.in<T>(h.operand)[0]));
  }
  return values;
}

}  // namespace sluice::ops
