#pragma once
#include <cstdint>

#include "sluice/planner/problem.h"

namespace sluice::planner {

/// Nodes for an exact search of about 30 seconds.
inline constexpr int64_t kLongSearchNodes = 5'000'000'000;

struct SolveOptions {
  /// Maximum number of examinations of a buffer by the search (about 10 ns each). Effort is limited
  /// by a count, not by time, so that equal problems have equal plans. Plans that do not examine
  /// pairs of buffers are always made. A problem with more pairs than this number has only those
  /// plans.
  int64_t max_nodes = 100'000'000;
  /// Average number of examinations of each pair of buffers that are live at the same time. Ends
  /// the search early for small problems.
  int64_t looks_per_pair = 2'000;
  /// Nodes of the exact search for all heights together. A node is the examination of a buffer, a
  /// pair or a section of time (3 to 10 ns). The search runs if the quick plans end above the
  /// bound. It requires at least the square of the number of buffers; 0 disables it. At most
  /// 100,000,000 nodes remain once it is known whether a plan fits the capacity.
  int64_t exact_nodes = 100'000'000;
  /// Limits the nodes of the exact search to this number times the square of the number of buffers,
  /// but not below 5,000,000. Ends the search early for small problems.
  int64_t exact_looks_per_pair = 2'000;
};

/// Computes an offset for each buffer, with a height as low as the searches find within their
/// nodes. With a capacity, first searches for a plan that fits it. Deterministic: a pure function
/// of its arguments. Error{kDoesNotFit} if the height found exceeds the capacity; the message has
/// the bytes needed, the capacity, the bound, and whether a search showed that no plan fits.
/// Error{kUsage} if the problem contradicts itself (see live_set_bound) or if two fixed buffers
/// overlap.
Solution solve(const Problem& problem, const SolveOptions& options = {});

}  // namespace sluice::planner
