#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/planner/problem.h"

namespace sluice::planner {

/// Indices of consecutive sections: first, …, last - 1.
struct Sections {
  int32_t first = 0;
  int32_t last = 0;
};

/// A problem in the form that the searches use. Its items are the buffers that need bytes, bytes
/// are counted in alignment units, and time is cut into sections. An item is born only at the begin
/// of a section.
struct Instance {
  int64_t unit = 1;                 ///< Bytes in a unit.
  int64_t bound = 0;                ///< Units that every plan needs.
  int32_t sections = 0;             ///< Number of sections.
  std::vector<size_t> buffer;       ///< Index in the problem, for each item.
  std::vector<int64_t> size;        ///< Units, > 0.
  std::vector<int64_t> align;       ///< Units, > 0.
  std::vector<int64_t> fixed;       ///< Offset in units, or -1.
  std::vector<int64_t> hint;        ///< Offset in units, or -1.
  std::vector<int64_t> length;      ///< Steps from the begin of the lifetime to its end.
  std::vector<Sections> ranges;     ///< Lifetimes, item by item, each in order and disjoint.
  std::vector<size_t> range_begin;  ///< Item i has ranges [range_begin[i], range_begin[i + 1]).

  int32_t count() const { return static_cast<int32_t>(buffer.size()); }
  std::span<const Sections> lifetime(int32_t item) const {
    return {ranges.data() + range_begin[item], ranges.data() + range_begin[item + 1]};
  }
};

/// Converts a problem. Error{kUsage} if the problem contradicts itself (see live_set_bound) or if
/// the sum of its sizes exceeds int64.
Instance make_instance(const Problem& problem);

/// The neighbours of each item, in any order: the items that live at one time with it.
struct Conflicts {
  std::vector<int32_t> neighbours;
  std::vector<size_t> begin;

  std::span<const int32_t> of(int32_t item) const {
    return {neighbours.data() + begin[item], neighbours.data() + begin[item + 1]};
  }
};

/// Returns an upper limit on the sum of the numbers of neighbours of all items, in O(n log n).
int64_t count_conflicts(const Instance& instance);
Conflicts make_conflicts(const Instance& instance);

/// Rounds `value` >= 0 to a multiple of `align`. Most items have alignment 1, for which these
/// functions avoid the slow division.
inline int64_t align_down(int64_t value, int64_t align) {
  return align == 1 ? value : value / align * align;
}
inline int64_t align_up(int64_t value, int64_t align) {
  return align == 1 ? value : (value + align - 1) / align * align;
}

/// Offset of each item in units; -1 for an item that is not placed.
using Offsets = std::vector<int64_t>;

/// The height in units of a plan in which every item is placed.
int64_t height_of(const Instance& instance, const Offsets& offsets);

}  // namespace sluice::planner
