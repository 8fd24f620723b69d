#pragma once
#include <algorithm>
#include <cstdint>

#include "sluice/base/checked.h"

/// How kernels are cut into tasks: from shapes alone, the same for any number of workers.
namespace sluice::cpu {

/// Tasks of a kernel, at most: two, four or eight workers get about as much each.
inline constexpr int64_t kMostTasks = 16;
/// Elements of an operand that a task has at least: far more work than handing it over costs.
inline constexpr int64_t kTaskElements = 4096;

/// Rows of a task, of `rows` rows of `cols` elements.
inline int64_t rows_per_task(int64_t rows, int64_t cols) {
  return std::max<int64_t>(
      {1, kTaskElements / std::max<int64_t>(cols, 1), ceil_div(rows, kMostTasks)});
}

}  // namespace sluice::cpu
