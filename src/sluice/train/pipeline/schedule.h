#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "sluice/train/cut/ids.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

std::string_view to_string(Schedule schedule);
/// Error{kUsage}, which lists the four names, for another name.
Schedule parse_schedule(std::string_view name);

/// The forward or the backward part of a stage.
struct PipelineTask {
  StageId stage{0};
  bool backward = false;
  int64_t slot = 0;  ///< Slot in which the task runs micro-batch 0.
};

/// The order of all tasks, for any number of micro-batches. A task runs micro-batch i in slot
/// `slot + i * period`. Slots give an order, not times. An iteration is `period` slots: it runs
/// each task once, for a micro-batch of its own.
struct PipelineOrder {
  int stages = 1;
  int64_t period = 1;
  /// Tasks in the order of an iteration. Within a slot, the task that is later in a micro-batch
  /// comes first.
  std::vector<PipelineTask> tasks;
  /// Step of each stage, ascending from 0 (split_stages). Empty: each stage is a step.
  Ids<StageId, int> steps = {};

  int step_of(StageId stage) const { return steps.empty() ? stage.value() : steps[stage]; }
  /// Returns the iteration in which a task runs micro-batch 0.
  int64_t iteration(const PipelineTask& task) const { return task.slot / period; }
  /// Returns the number of iterations before the first one that runs all tasks. As many follow the
  /// last one that runs all tasks.
  int64_t ramp() const;
  /// Returns the number of slots of `micro_batches`.
  int64_t slots(int64_t micro_batches) const;
};

/// Returns the depths of a schedule other than kAuto.
std::vector<int> depths_of(Schedule schedule, int stages);

/// Returns the order of training with a schedule. Error{kUsage} for kAuto, whose order follows from
/// depths.
PipelineOrder training_order(Schedule schedule, int stages);
/// Returns the order for depths that kAuto may choose: stage s has S - s to 2(S - s) - 1, and a
/// stage has at least one more than the next one. Error{kUsage} for other depths.
PipelineOrder training_order(const std::vector<int>& depths);
/// Returns the order of evaluation, which has forward tasks only. With kSequential, a micro-batch
/// ends before the next one begins.
PipelineOrder evaluation_order(int stages, Schedule schedule = Schedule::kGrouped);

/// Returns an order of `steps.size()` stages in which stage i has the slots that stage `steps[i]`
/// has in `order`. Stages with one step run in the order of their numbers forward, and in the
/// opposite order backward. `steps` ascends from 0 to order.stages - 1.
PipelineOrder split_stages(const PipelineOrder& order, const Ids<StageId, int>& steps);

}  // namespace sluice::train
