#pragma once
#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// Adds the programs of Strategy::kResident (build_training()). The streams of `training` exist.
void build_resident(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                    const WeightGroups& groups, nn::Optimizer& optimizer,
                    const StepOptions& options, Training& training);

}  // namespace sluice::train
