#include "sluice/train/pipeline/schedule.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "sluice/base/error.h"

namespace sluice::train {
namespace {

constexpr std::array<std::pair<std::string_view, Schedule>, 4> kNames = {{
    {"grouped", Schedule::kGrouped},
    {"interleaved", Schedule::kInterleaved},
    {"sequential", Schedule::kSequential},
    {"auto", Schedule::kAuto},
}};

using Slots = Ids<StageId, int64_t>;

// Makes an order from the slots of each stage. `backward` is empty for evaluation.
PipelineOrder make_order(int64_t period, const Slots& forward, const Slots& backward) {
  PipelineOrder order;
  order.stages = static_cast<int>(forward.size());
  order.period = period;
  for (const StageId s : forward.ids()) order.tasks.push_back({s, false, forward[s]});
  for (const StageId s : backward.ids()) order.tasks.push_back({s, true, backward[s]});
  const auto key = [&](const PipelineTask& t) {
    const int depth = t.backward ? 2 * order.stages - 1 - t.stage : t.stage;
    return std::tuple(t.slot % period, -depth);
  };
  std::sort(order.tasks.begin(), order.tasks.end(),
            [&](const PipelineTask& a, const PipelineTask& b) { return key(a) < key(b); });
  return order;
}

}  // namespace

std::string_view to_string(Schedule schedule) {
  return std::find_if(kNames.begin(), kNames.end(),
                      [&](const auto& n) { return n.second == schedule; })
      ->first;
}

Schedule parse_schedule(std::string_view name) {
  for (const auto& [known, schedule] : kNames) {
    if (known == name) return schedule;
  }
  fail(ErrorKind::kUsage,
       "schedule: must be one of grouped, interleaved, sequential and auto, got '{}'", name);
}

int64_t PipelineOrder::ramp() const {
  int64_t last = 0;
  for (const PipelineTask& t : tasks) last = std::max(last, iteration(t));
  return last;
}

int64_t PipelineOrder::slots(int64_t micro_batches) const {
  int64_t last = 0;
  for (const PipelineTask& t : tasks) last = std::max(last, t.slot);
  return (micro_batches - 1) * period + last + 1;
}

std::vector<int> depths_of(Schedule schedule, int stages) {
  std::vector<int> depths;
  for (int s = 0; s < stages; ++s) {
    const int rest = stages - s;
    depths.push_back(schedule == Schedule::kGrouped       ? 2 * rest - 1
                     : schedule == Schedule::kInterleaved ? rest
                                                          : 1);
  }
  return depths;
}

PipelineOrder training_order(Schedule schedule, int stages) {
  require(schedule != Schedule::kAuto,
          "schedule: auto has no order of its own; choose depths with choose_depths()");
  if (schedule == Schedule::kInterleaved) return training_order(depths_of(schedule, stages));
  Slots forward, backward;
  for (int s = 0; s < stages; ++s) {
    forward.push_back(s);
    backward.push_back(2 * stages - 1 - s);
  }
  return make_order(schedule == Schedule::kGrouped ? 1 : 2 * stages, forward, backward);
}

PipelineOrder training_order(const std::vector<int>& depths) {
  const auto stages = static_cast<int>(depths.size());
  Slots forward, backward;
  int before = 0;
  for (const int depth : depths) {
    const auto s = static_cast<int>(forward.size());
    const int rest = stages - s;
    const bool falls = s == 0 || before > depth;
    require(
        depth >= rest && depth <= 2 * rest - 1 && falls,
        "schedule: stage {} of {} must have a depth of {} to {}, below that of the stage before "
        "it, got {}",
        s, stages, rest, 2 * rest - 1, depth);
    const int shift = 2 * (depths[0] - stages);  // Stage 0 begins in slot 0.
    forward.push_back(shift + s - 2 * (depth - rest));
    backward.push_back(shift + 2 * stages - 1 - s);
    before = depth;
  }
  return make_order(2, forward, backward);
}

PipelineOrder evaluation_order(int stages, Schedule schedule) {
  Slots forward;
  for (int s = 0; s < stages; ++s) forward.push_back(s);
  return make_order(schedule == Schedule::kSequential ? stages : 1, forward, {});
}

PipelineOrder split_stages(const PipelineOrder& order, const Ids<StageId, int>& steps) {
  PipelineOrder result{.stages = static_cast<int>(steps.size()),
                       .period = order.period,
                       .tasks = {},
                       .steps = steps};
  for (const PipelineTask& task : order.tasks) {
    for (int i = 0; i < result.stages; ++i) {
      const StageId stage(task.backward ? result.stages - 1 - i : i);
      if (steps[stage] == task.stage) result.tasks.push_back({stage, task.backward, task.slot});
    }
  }
  return result;
}

}  // namespace sluice::train
