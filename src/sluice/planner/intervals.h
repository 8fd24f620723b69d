#pragma once
#include <cstdint>
#include <vector>

#include "sluice/planner/problem.h"

namespace sluice::planner {

/// Returns the steps of `lifetime` as sorted intervals that neither overlap nor touch.
std::vector<Interval> normalized(const std::vector<Interval>& lifetime);

/// Whether the buffer has bytes, and a step at which it is alive.
bool needs_bytes(const Buffer& buffer);

/// Returns the greatest common divisor of the alignments of all buffers that need bytes (1 without
/// such buffers). Every offset is a multiple of it. Error{kUsage} if the fields of a buffer are
/// inconsistent.
int64_t alignment_unit(const Problem& problem);

}  // namespace sluice::planner
