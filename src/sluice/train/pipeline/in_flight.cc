#include "sluice/train/pipeline/in_flight.h"

#include <algorithm>

#include "sluice/train/pipeline/task_walk.h"

namespace sluice::train {

std::vector<int64_t> max_in_flight(const PipelineOrder& order, int64_t micro_batches) {
  const bool trains = std::any_of(order.tasks.begin(), order.tasks.end(),
                                  [](const PipelineTask& task) { return task.backward; });
  std::vector<int64_t> now(static_cast<size_t>(order.stages)), most(now);
  // After the ramp, each iteration has as many in flight as the one before it.
  const int64_t walked = std::min(micro_batches, 2 * order.ramp() + 2);
  for_each_task(order, walked, [&](const PipelineTask& task, int64_t) {
    const auto s = static_cast<size_t>(task.stage);
    if (!task.backward) most[s] = std::max(most[s], ++now[s]);
    if (task.backward == trains) --now[s];
  });
  return most;
}

}  // namespace sluice::train
