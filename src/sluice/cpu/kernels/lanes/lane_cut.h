#pragma once
#include <algorithm>
#include <cstdint>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/target/target.h"

namespace sluice::cpu {

/// The lanes [begin, end) of `inner` at one index of the axes before the lanes' axis.
struct LaneGroup {
  int64_t outer, begin, end;
};

/// How tasks share lanes, the elements along one axis. A task computes whole lanes. It cuts the
/// axes before the lanes' axis or, if these have few elements, the axes after it.
class LaneCut {
 public:
  LaneCut() = default;
  /// `extent`: elements of a lane, as they weigh in the size of a task.
  LaneCut(int64_t outer_elements, int64_t inner_elements, int64_t extent)
      : outer(outer_elements), inner(outer_elements == 0 ? 0 : inner_elements) {
    rows = outer > 1 && (outer >= kMaxTasks || inner < outer * kLaneGroup);
    if (rows) {
      per_task = rows_per_task(outer, extent * inner);
      tasks = ceil_div(outer, per_task);
    } else {
      per_task = round_up(rows_per_task(inner, outer * extent), kLaneGroup);
      tasks = std::max<int64_t>(1, ceil_div(inner, per_task));
    }
  }

  /// Adds the range of an operand whose lanes have `extent` elements of `bytes` bytes.
  void add_range(int64_t extent, int64_t bytes, KernelChoice& choice) const {
    choice.task_stride.push_back(per_task * bytes * (rows ? extent * inner : 1));
    choice.task_pitch.push_back(rows ? 0 : inner * bytes);
  }

  /// Calls f(LaneGroup) for the lanes of a task.
  template <typename F>
  void for_each_group(int64_t task, F f) const {
    const int64_t begin = task * per_task, end = begin + per_task;
    if (rows) {
      for (int64_t o = begin; o < std::min(outer, end); ++o) f(LaneGroup{o, 0, inner});
    } else {
      for (int64_t o = 0; o < outer; ++o) f(LaneGroup{o, begin, std::min(inner, end)});
    }
  }

  int64_t outer = 1;     ///< Elements before the axis.
  int64_t inner = 1;     ///< Elements after the axis; 0 if there is no lane.
  bool rows = false;     ///< A task has some elements before the axis, and all after it.
  int64_t per_task = 1;  ///< Elements before the axis, or after it.
  int64_t tasks = 1;

 private:
  // A cut of the axes after it is a multiple of this, so that tasks write separate cache lines.
  static constexpr int64_t kLaneGroup = 64;
};

}  // namespace sluice::cpu
