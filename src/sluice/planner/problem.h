#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::planner {

/// Steps begin, begin + 1, …, end - 1. Empty when begin >= end.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Interval&) const = default;
};

/// A range of bytes that has one offset for its whole lifetime. Two buffers may share bytes only if
/// no step is in both lifetimes. A buffer without bytes or without steps needs no bytes.
struct Buffer {
  std::string name;
  std::vector<Interval> lifetime;  ///< Set of steps; intervals may be unsorted, touch or overlap.
  int64_t size = 0;                ///< Bytes, >= 0.
  int64_t alignment = 1;           ///< The offset is a multiple of this number, >= 1.
  std::optional<int64_t> fixed_offset;  ///< Offset that the buffer must have, if any.
  std::optional<int64_t> hint;  ///< Preferred offset, e.g. from an earlier plan; not binding.
};

struct Problem {
  std::vector<Buffer> buffers;
  std::optional<int64_t> capacity;  ///< Limit of the height in bytes, if any.
};

/// An offset in bytes for each buffer, in the order of the problem.
struct Solution {
  std::vector<int64_t> offsets;
  int64_t height = 0;  ///< Bytes of the arena: max(offset + size) over buffers that need bytes.
  int64_t bound = 0;   ///< live_set_bound(problem): no plan is lower.
  /// True if the bound or a complete search shows that no plan is lower by an alignment unit or
  /// more. (The unit is the greatest common divisor of the alignments.)
  bool optimal = false;
  /// Bytes that every plan needs: `bound`, or more if the exact search refuted lower heights.
  int64_t lower_bound = 0;
  /// Nodes that the exact search used (see SolveOptions::exact_nodes).
  int64_t exact_nodes = 0;
};

/// Returns the live-set bound, a number of bytes that every plan needs. It is the largest sum of
/// sizes alive at one step, and at least offset + size of each fixed buffer. Each size is rounded
/// up to the greatest common divisor of the alignments, except that of one buffer, which may be the
/// topmost. O(n log n) for n buffers. Error{kUsage} if the problem contradicts itself: a negative
/// size or offset, an alignment below 1, a fixed offset that breaks its alignment, a sum that
/// exceeds int64.
int64_t live_set_bound(const Problem& problem);

}  // namespace sluice::planner
