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

/// A run of bytes that keeps one offset for its whole life. Two buffers may share bytes only if no
/// step is in both lifetimes. A buffer of no size or no step is never in the way and takes no room.
struct Buffer {
  std::string name;
  std::vector<Interval> lifetime;  ///< A set of steps: in any order, may touch or overlap.
  int64_t size = 0;                ///< Bytes, >= 0.
  int64_t alignment = 1;  ///< The offset is a multiple of this, >= 1 (not only powers of two).
  std::optional<int64_t> fixed_offset;  ///< The offset it must have.
  std::optional<int64_t>
      hint;  ///< An offset it would like, e.g. that of an earlier plan; never binding.
};

struct Problem {
  std::vector<Buffer> buffers;
  std::optional<int64_t> capacity;  ///< Bytes. Without it every height is good.
};

/// An offset in bytes for each buffer, in the order of the problem.
struct Solution {
  std::vector<int64_t> offsets;
  int64_t height = 0;  ///< Bytes of the arena: max(offset + size) over buffers that take room.
  int64_t bound = 0;   ///< live_set_bound(problem): no plan is lower.
  /// No plan is lower by a whole alignment unit (the greatest common divisor of the alignments) or
  /// more: shown by the bound, or by a search that tried everything.
  bool optimal = false;
  /// Every plan has at least so many bytes: the bound, or the least that the exact search left.
  int64_t lower_bound = 0;
  /// Looks of the exact search (see SolveOptions::exact_nodes).
  int64_t exact_nodes = 0;
};

/// Bytes below which no arena can be: the largest sum of sizes alive at one step, each rounded up
/// to the greatest common divisor of the alignments (less the rounding of one buffer, which may be
/// the topmost), and at least offset + size of each fixed buffer. O(n log n). Error{kUsage} for a
/// problem that contradicts itself: negative size or offset, alignment below 1, a fixed offset that
/// breaks its alignment, a sum that leaves int64.
int64_t live_set_bound(const Problem& problem);

}  // namespace sluice::planner
