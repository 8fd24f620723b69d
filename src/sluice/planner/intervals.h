#pragma once
#include <cstdint>
#include <vector>

#include "sluice/planner/problem.h"

namespace sluice::planner {

/// The same set of steps as disjoint, non-touching intervals in order.
std::vector<Interval> normalized(const std::vector<Interval>& lifetime);

/// Whether the buffer has bytes and a step at which it is alive.
bool takes_room(const Buffer& buffer);

/// The greatest common divisor of the alignments of the buffers that take room, 1 if there are
/// none: every offset is a multiple of it. Error{kUsage} for a buffer that contradicts itself.
int64_t alignment_unit(const Problem& problem);

}  // namespace sluice::planner
