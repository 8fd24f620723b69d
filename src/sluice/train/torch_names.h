#pragma once
#include <vector>

#include "sluice/train/training_step.h"

namespace sluice::train {

/// Returns the counterpart in PyTorch's module of each variable, in the order of the factories.
std::vector<TorchWeight> torch_weights(const nn::NamedVariableFactories& factories);

}  // namespace sluice::train
