#pragma once
#include <string>
#include <variant>
#include <vector>

#include "sluice/ops/op.h"

namespace sluice::ops {

/// A hyperparameter as an operator function takes it: a number, or a scalar tensor of a
/// floating-point dtype.
class HyperArg {
 public:
  HyperArg(double value) : value_(value) {}  // NOLINT: implicit
  HyperArg(Tensor tensor,
           std::source_location where = std::source_location::current())  // NOLINT: implicit
      : value_(TensorArg(std::move(tensor), where)) {}

  /// Null if it is a number.
  const TensorArg* tensor() const { return std::get_if<TensorArg>(&value_); }
  double number() const { return std::get<double>(value_); }

 private:
  std::variant<double, TensorArg> value_;
};

/// The operands and the options of an op with hyperparameters while it is put together. Numbers
/// become the options' fields; tensors become operands, and option `operands` lists their names.
class HyperArgs {
 public:
  explicit HyperArgs(std::vector<TensorArg> operands) : inputs(std::move(operands)) {}

  /// The number for the options struct's field `name`, `otherwise` if the argument is a tensor
  /// (then an operand).
  double add(const std::string& name, const HyperArg& arg, double otherwise = 0) {
    if (arg.tensor() == nullptr) return arg.number();
    inputs.push_back(*arg.tensor());
    operands += (operands.empty() ? "" : ",") + name;
    return otherwise;
  }

  std::vector<TensorArg> inputs;
  std::string operands;
};

/// Where a hyperparameter's value comes from: from operand `operand`, or it is `value` if that is
/// -1.
struct Hyper {
  std::string name;
  int operand = -1;
  double value = 0;
};

/// The hyperparameters of an op, in the order of its options: each option that is a number. Those
/// that option `operands` names are the op's operands after the fixed ones, in that order.
/// Error{kUsage} for an unknown name or a missing operand.
std::vector<Hyper> hypers_of(const OpView& op);

/// For shape rules: every hyperparameter operand is there and is a floating-point scalar
/// (`constraint`: "(C3)").
void require_hypers(const OpView& op, std::string_view constraint);

/// For reference kernels: the values in that order; operands are arrays of T.
template <typename T>
std::vector<double> hyper_values(const KernelArgs& k) {
  std::vector<double> values;
  for (const Hyper& h : hypers_of(k.op())) {
    values.push_back(h.operand < 0 ? h.value : static_cast<double>(k.in<T>(h.operand)[0]));
  }
  return values;
}

}  // namespace sluice::ops
