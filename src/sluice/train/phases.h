#pragma once
#include "sluice/train/training_step.h"

namespace sluice::train {

/// build_training() for Strategy::kPhased. Sets `variables`, `state`, `logits` and `note`
/// of `training`; its other streams must be set before.
///
/// Neighbouring blocks of one kind share graphs and remote buffers. Each block has one row in them.
/// A step computes the seeds of all micro-batches, then runs forward phases in ascending order. One
/// phase then runs the last block forward, the loss, and the block backward. Backward phases follow
/// in descending order. Each also updates its block. A forward phase first loads the offloaded
/// weights of its block. A backward phase first loads the offloaded weights and state, and then
/// stores them.
void build_phased(Ir ir, const ModelSpec& model, nn::Optimizer& optimizer,
                  const StepOptions& options, Training& training);

}  // namespace sluice::train
