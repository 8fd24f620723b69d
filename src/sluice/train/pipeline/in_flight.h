#pragma once
#include <cstdint>
#include <vector>

#include "sluice/train/pipeline/schedule.h"

namespace sluice::train {

/// Returns for each stage the largest number of micro-batches in flight when `micro_batches` run in
/// this order. A micro-batch is in flight from the begin of its forward task to the end of its
/// backward task, or of its forward task if the order has no backward ones. It is the number of
/// activation sets that a stage stores. Error{kUsage} if `micro_batches` is below 1.
std::vector<int64_t> max_in_flight(const PipelineOrder& order, int64_t micro_batches);

}  // namespace sluice::train
