#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "sluice/ir/op_def.h"

namespace sluice::ops {

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
