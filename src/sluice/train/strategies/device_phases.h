#pragma once
#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// build_phased() for activations that stay on the device. In the program, a block runs one
/// micro-batch after another, without a loop over them. So the length of the program grows with the
/// micro-batches. Rows are not in a loop either.
void build_device_phases(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                         const WeightRules& rules, nn::Optimizer& optimizer, const Options& options,
                         const Options& inference, Training& training);

}  // namespace sluice::train
