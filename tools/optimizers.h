#pragma once
#include <string>

#include "sluice/base/options/option.h"
#include "sluice/nn/update/optimizers.h"
#include "sluice/train/network.h"
#include "tools/options.h"

namespace sluice::tool {

/// Names of the optimizers.
TextForm<std::string> optimizers();
/// Returns the default learning rate of each optimizer: "sgd 0.05, momentum 0.005, …".
std::string default_rates();

/// Returns the default learning rate of the optimizer that the options select.
double default_rate(const ToolOptions& options);
/// Whether this optimizer keeps state.
bool has_optimizer_state(const ToolOptions& options);

/// Returns this optimizer with its coefficients. --weight-decay decays variables with at least two
/// axes: the others, such as biases and norms, are in a group of their own. Error{kUsage} for a
/// coefficient that the optimizer does not have.
nn::Optimizer make_optimizer(const ToolOptions& options, const train::Network& network);

}  // namespace sluice::tool
