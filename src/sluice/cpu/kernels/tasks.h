#pragma once
#include <algorithm>
#include <cstdint>

#include "sluice/base/checked.h"

/// Cuts kernels into tasks, from shapes alone: the cut does not depend on the number of workers.
namespace sluice::cpu {

/// Maximum number of tasks of a kernel. Two, four or eight workers get about equal shares of 16
/// tasks.
inline constexpr int64_t kMaxTasks = 16;
/// Fewest elements of a task. Computing them costs far more than handing the task to a worker.
inline constexpr int64_t kTaskElements = 4096;
/// Fewest bytes of a task that only moves elements.
inline constexpr int64_t kTaskBytes = 65536;

/// Returns the rows of a task of a kernel on `rows` rows of `cols` elements.
inline int64_t rows_per_task(int64_t rows, int64_t cols) {
  return std::max<int64_t>(
      {1, kTaskElements / std::max<int64_t>(cols, 1), ceil_div(rows, kMaxTasks)});
}

}  // namespace sluice::cpu
