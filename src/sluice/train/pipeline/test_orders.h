#pragma once
#include <vector>

#include "sluice/train/pipeline/schedule.h"

namespace sluice::train {

/// Returns all depths that training_order() accepts for a number of stages: they fall from stage to
/// stage and end with 1.
inline std::vector<std::vector<int>> all_depths(int stages) {
  if (stages == 0) return {{}};
  std::vector<std::vector<int>> found;
  for (const std::vector<int>& rest : all_depths(stages - 1)) {
    const int min = rest.empty() ? 1 : rest[0] + 1;
    for (int depth = min; depth <= 2 * stages - 1; ++depth) {
      found.push_back({depth});
      found.back().insert(found.back().end(), rest.begin(), rest.end());
    }
  }
  return found;
}

/// Returns the orders of all schedules and of all depths for a number of stages.
inline std::vector<PipelineOrder> all_training_orders(int stages) {
  std::vector<PipelineOrder> orders = {training_order(Schedule::kGrouped, stages),
                                       training_order(Schedule::kInterleaved, stages),
                                       training_order(Schedule::kSequential, stages)};
  for (const std::vector<int>& depths : all_depths(stages))
    orders.push_back(training_order(depths));
  return orders;
}

}  // namespace sluice::train
