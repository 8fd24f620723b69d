#pragma once
#include <cstdint>

#include "sluice/planner/instance.h"

namespace sluice::planner {

enum class Outcome {
  kFound,    ///< A plan was found.
  kRefuted,  ///< No plan exists.
  kGaveUp,   ///< Unknown: the nodes ran out.
};

/// Returns the minimum number of nodes with which exact_search() runs: enough to place every item
/// once. With fewer nodes it returns kGaveUp at once. INT64_MAX if there are more than 4096 items.
int64_t exact_search_nodes(const Instance& instance);

/// Searches for a plan of at most `height` units. Runs StackSearch with several rankings of the
/// items alternately, until one of them ends. `max_nodes` is an approximate limit on the
/// examinations of an item, a pair or a section. Adds the examinations to `nodes`, and changes
/// `offsets` only if it finds a plan. Deterministic: a pure function of its arguments. Returns
/// kGaveUp also if a size, an alignment or the height is near the end of int64.
Outcome exact_search(const Instance& instance, const Conflicts& conflicts, int64_t height,
                     int64_t max_nodes, Offsets& offsets, int64_t& nodes);

}  // namespace sluice::planner
