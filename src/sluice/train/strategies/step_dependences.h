#pragma once
#include <optional>
#include <vector>

#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/order/dependences.h"
#include "sluice/train/pipeline/stages.h"

namespace sluice::train {

/// Returns what limits the order of a step's tasks (check_order()). `weights` are the trained ones.
/// The first block of the cut that reads a field or a seed loads it for the others. The first block
/// loads those that no block reads. Micro-batches of a block ascend if it loads a value, updates a
/// running variable or makes a result.
StepDependences step_dependences(const NetworkGraph& network, const Cut& cut,
                                 const BlockGradients& gradients, const TrainedWeights& weights,
                                 const PlacedStages& stages, const Options& options,
                                 nn::RunMode mode);

/// Returns the counts of a run of training or evaluation with these options.
OrderCounts counts_of(const Options& options, nn::RunMode mode);

}  // namespace sluice::train
