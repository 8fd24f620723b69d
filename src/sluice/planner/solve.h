#pragma once
#include <cstdint>

#include "sluice/planner/problem.h"

namespace sluice::planner {

/// Nodes of an exact search of about 30 seconds.
inline constexpr int64_t kLongSearchNodes = 5'000'000'000;

struct SolveOptions {
  /// How many times the search may look at a buffer (about 10 ns each). Bounds effort by counting,
  /// never by time, so that the same problem gets the same plan. Plans that look at no pairs of
  /// buffers are made whatever this says; a problem with more pairs than this gets no others.
  int64_t max_nodes = 100'000'000;
  /// How many times, on average, it may look at each pair of buffers that live at one time: ends
  /// the search early for small problems.
  int64_t looks_per_pair = 2'000;
  /// Nodes of the exact search for all heights together: looks at a buffer, a pair or a section of
  /// time, of 3 to 10 ns each. It runs where quick plans that look at pairs end above the bound.
  /// It needs at least the square of the number of buffers; 0 turns it off. At most 100,000,000
  /// remain once it is known whether a plan fits the capacity.
  int64_t exact_nodes = 100'000'000;
  /// Nodes of the exact search for each two buffers, but at least 5,000,000 in all: ends the search
  /// early for small problems.
  int64_t exact_looks_per_pair = 2'000;
};

/// Offsets for all buffers, as low as the searches find within their nodes; where a capacity is
/// given, what fits it is looked for first. Deterministic: a pure function of its arguments.
/// Error{kDoesNotFit} if a capacity is given and the height found exceeds it, with the bytes
/// needed, the capacity, the bound, and whether a search showed that no plan fits. Error{kUsage}
/// for a problem that contradicts itself (see live_set_bound), also when two fixed buffers overlap.
Solution solve(const Problem& problem, const SolveOptions& options = {});

}  // namespace sluice::planner
