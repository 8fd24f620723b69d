#pragma once
#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// build_phased() for activations that stay on the device. The visits of a block by the
/// micro-batches are one after another in the program, so its length grows with their number, and
/// rows have no loop.
void build_device_phases(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                         const WeightRules& rules, nn::Optimizer& optimizer, const Options& options,
                         const Options& inference, Training& training);

}  // namespace sluice::train
