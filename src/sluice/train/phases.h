#pragma once
#include "sluice/train/training_step.h"

namespace sluice::train {

/// build_training() for Strategy::kPhased: fills in what is not a stream of inputs.
///
/// Neighbouring blocks of one kind share graphs and remote buffers, a row each. A step is: seeds of all micro-batches;
/// forward phases ascending; one phase that runs the last block forward, the loss and the block backward; backward phases
/// descending. A backward phase also updates its block. Around a phase its weights and state are loaded and stored, as far as
/// they are offloaded.
void build_phased(Ir ir, const ModelSpec& model, nn::Optimizer& optimizer,
                  const StepOptions& options, Training& training);

}  // namespace sluice::train
