#pragma once
#include <string_view>
#include <vector>

#include "sluice/nn/update/optimizers.h"

/// Checks and hyperparameters of the options of optimizers.
namespace sluice::nn::internal {

/// Returns whether a coefficient is an input of the update graph.
inline bool is_input(const Coefficient& c) { return c.tensor() != nullptr || c.is_streamed(); }
/// Returns whether a coefficient is the constant 0. An input is not, whatever its value.
inline bool is_zero(const Coefficient& c) { return !is_input(c) && c.number() == 0; }

/// Error{kUsage} unless the number `h` is in the range of hyperparameter `name`, or the tensor `h`
/// is a floating-point scalar.
void check_hyper(std::string_view name, const ops::HyperArg& h);
/// Returns the rule with numbers for the defaults that depend on the form. Error{kUsage} if a value
/// is out of range or options exclude each other.
UpdateRule checked(UpdateRule rule);
/// Returns the learning rate of a rule that is trained without one.
double default_learning_rate(const UpdateRule& rule);
/// Returns the inputs of an update graph for the coefficients that are streamed or tensors.
std::vector<NamedInput> hyper_inputs(const UpdateRule& rule);
/// Returns the tensors of these inputs, in the same order. `streamed` has those of the streamed
/// coefficients.
Tensors hyper_tensors(const UpdateRule& rule, const Tensors& streamed);
/// Returns the streamed coefficients, in the same order, with parameter group 0.
std::vector<StreamedCoefficient> streamed_coefficients(const UpdateRule& rule);

}  // namespace sluice::nn::internal
