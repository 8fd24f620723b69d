#pragma once
#include <cstdint>

#include "sluice/base/error.h"
#include "sluice/train/pipeline/schedule.h"

namespace sluice::train {

/// Calls `run(task, micro_batch)` for each task and each micro-batch: iteration after iteration,
/// and within one in the order of `order.tasks`. Each task comes after those that it depends on.
/// Error{kUsage} if `micro_batches` is below 1.
template <typename Run>
void for_each_task(const PipelineOrder& order, int64_t micro_batches, Run&& run) {
  require(micro_batches >= 1, "pipeline: must run at least 1 micro-batch, got {}", micro_batches);
  for (int64_t k = 0; k < micro_batches + order.ramp(); ++k) {
    for (const PipelineTask& task : order.tasks) {
      const int64_t micro_batch = k - order.iteration(task);
      if (micro_batch >= 0 && micro_batch < micro_batches) run(task, micro_batch);
    }
  }
}

}  // namespace sluice::train
