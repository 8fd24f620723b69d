#pragma once
#include <cstdint>

#include "sluice/planner/instance.h"

namespace sluice::planner {

enum class Outcome {
  kFound,    ///< Here is a plan.
  kRefuted,  ///< There is none.
  kGaveUp,   ///< Not known: the nodes ran out.
};

/// Nodes that the search requires for one way down: with fewer it gives up at once. INT64_MAX for
/// more items than it takes.
int64_t exact_search_nodes(const Instance& instance);

/// Searches for a plan of at most `height` units with two searches by turns, until one of them
/// ends: StackSearch, and OrderSearch once that has used some nodes. Looks at most about
/// `max_nodes` times at an item, a pair or a section, adds the looks to `nodes`, and changes
/// `places` only if it finds a plan. A pure function of its arguments; numbers near the end of
/// int64 are given up.
Outcome exact_search(const Instance& instance, const Conflicts& conflicts, int64_t height,
                     int64_t max_nodes, Places& places, int64_t& nodes);

}  // namespace sluice::planner
