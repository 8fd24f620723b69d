#pragma once
#include <optional>
#include <vector>

#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/pipeline/pipeline_times.h"

namespace sluice::train {

/// Returns the seconds of the forward and backward tasks of each block for one micro-batch, at the
/// rates of a device. The time of an op is the maximum of the times for its operations and for the
/// bytes of its operands.
Ids<BlockId, StageTimes> block_times(const Cut& cut, const BlockGradients& gradients,
                                     const DeviceRates& rates);

/// Cuts blocks into `stages` stages of consecutive blocks, whose slowest stage is as fast as
/// possible, and returns the first block of each. Of several such cuts it returns the one whose
/// first stages are the shortest. `seconds` has the time of each block. Error{kUsage} if there are
/// fewer blocks than stages.
std::vector<BlockId> balanced_cut(const Ids<BlockId, double>& seconds, int stages);

}  // namespace sluice::train
