#pragma once
#include <cstdint>
#include <vector>

#include "sluice/train/pipeline/pipeline_times.h"

namespace sluice::train {

/// Costs from which Schedule::kAuto chooses depths.
struct PipelineCosts {
  Ids<StageId, StageTimes> stages;         ///< Times of each stage.
  Ids<StageId, int64_t> activation_bytes;  ///< Bytes that a stage stores for a micro-batch.
  Ids<StageId, DeviceId> devices = {};     ///< Device of each stage. Empty: each has its own.
  Ids<DeviceId, int64_t> budgets = {};     ///< Bytes that a device may store. Empty: no limit.
  Ids<StageId, int> steps = {};            ///< Step of each stage. Empty: each is one.
};

/// Returns the depths of the steps for which training_order() is fastest within the budgets
/// (simulate_pipeline). Times within 0.1 % of the minimum count as equal; among them, the depths
/// that store the fewest bytes are chosen, then the lowest ones. If even the depths S - s exceed a
/// budget, these depths are returned.
///
/// With up to 8 steps all depths are tried. With more, depths min(S - s + e, 2(S - s) - 1) are
/// tried for e = 0 to S - 1, each lowered where it exceeds a budget. Then neighbouring stages are
/// raised or lowered by 1 as long as this saves time; the result may not be the best. If the
/// simulations have more than 20 million tasks together, they are shortened, and the time of later
/// micro-batches is extrapolated. The result depends on the arguments alone.
///
/// Error{kUsage} if `micro_batches` is below 1, a time, a size or a budget is negative, or a vector
/// does not have an element for each stage or device.
std::vector<int> choose_depths(const PipelineCosts& costs, int64_t micro_batches);

}  // namespace sluice::train
