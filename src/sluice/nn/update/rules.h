#pragma once
#include <string_view>
#include <vector>

#include "sluice/nn/update/optimizers.h"

/// Checks and hyperparameters of the options of optimizers.
namespace sluice::nn::internal {

/// Error{kUsage} unless the number `h` is in the range of hyperparameter `name`, or the tensor `h`
/// is a floating-point scalar.
void check_hyper(std::string_view name, const ops::HyperArg& h);
/// Returns the rule with numbers for the defaults that depend on the form. Error{kUsage} if a value
/// is out of range or options exclude each other.
UpdateRule checked(UpdateRule rule);
/// Returns the learning rate of a rule that is trained without one.
double default_learning_rate(const UpdateRule& rule);
/// Returns the inputs of an update graph for the hyperparameters that are tensors.
std::vector<NamedInput> hyper_inputs(const UpdateRule& rule);
/// Returns the hyperparameters that are tensors, in the same order.
Tensors hyper_tensors(const UpdateRule& rule);

}  // namespace sluice::nn::internal
