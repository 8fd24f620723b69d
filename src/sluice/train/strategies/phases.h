#pragma once
#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// Adds the programs of a step in phases (build_training()). The streams of `training` exist.
///
/// Neighbouring blocks with equal graphs share them, and remote buffers; each block has one row in
/// them (block_groups.h). A step computes the seeds of all micro-batches, then runs forward phases
/// in ascending order. One phase then runs the last block forward and backward. Backward phases
/// follow in descending order. Each also updates its block. A forward phase first loads the
/// offloaded weights of its block. A backward phase first loads the offloaded weights and state,
/// and then stores them. Values that other blocks read wait in remote buffers, and so do the
/// gradients of these values.
void build_phased(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                  const WeightRules& rules, nn::Optimizer& optimizer, const Options& options,
                  const Options& inference, Training& training);

}  // namespace sluice::train
