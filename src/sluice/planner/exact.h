#pragma once
#include <cstdint>

#include "sluice/planner/instance.h"

namespace sluice::planner {

/// Items above which exact_search takes too long to be worth a try.
constexpr int32_t kExactItems = 24;

/// Depth-first search over all plans lower than `places`, which it replaces with the lowest it finds. Returns whether
/// it saw all of them within `max_nodes` visits of an item, so that `places` is as low as any plan.
bool exact_search(const Instance& instance, int64_t max_nodes, Places& places);

}  // namespace sluice::planner
