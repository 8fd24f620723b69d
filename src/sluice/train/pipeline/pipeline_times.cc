#include "sluice/train/pipeline/pipeline_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <queue>
#include <set>

#include "sluice/base/error.h"
#include "sluice/train/pipeline/stage_devices.h"
#include "sluice/train/pipeline/task_walk.h"

namespace sluice::train {
namespace {

constexpr int64_t kMaxSimulated = 4096;  // Micro-batches.

// The messages that a stage receives from one stage of a neighbouring step.
struct Link {
  StageId from;
  double seconds = 0;  // Time of a message.
  double free = 0;     // Time at which the last message has passed.
  std::queue<double> arrivals;

  void send(double now) {
    free = std::max(free, now) + seconds;
    arrivals.push(free);
  }
  double receive() {
    const double arrival = arrivals.front();
    arrivals.pop();
    return arrival;
  }
};

// Links into each stage: [0] from the step before it, [1] from the step after it.
using Links = Ids<StageId, std::array<std::vector<Link>, 2>>;

Links make_links(const PipelineOrder& order, const Ids<StageId, StageTimes>& stages,
                 const Ids<StageId, DeviceId>& devices) {
  Links links(stages.size());
  for (const StageId a : stages.ids()) {
    for (const StageId b : IdRange(StageId(a + 1), stages.end_id())) {
      if (order.step_of(b) != order.step_of(a) + 1) continue;
      const double seconds = devices[a] == devices[b] ? 0 : stages[a].message;
      links[b][0].push_back({.from = a, .seconds = seconds, .arrivals = {}});
      links[a][1].push_back({.from = b, .seconds = seconds, .arrivals = {}});
    }
  }
  return links;
}

void check_times(const Ids<StageId, StageTimes>& stages, int count) {
  require(stages.end_id() == count, "pipeline: must have the times of each of {} stages, got {}",
          count, stages.size());
  for (const StageTimes& times : stages) {
    for (const double seconds : {times.forward, times.backward, times.message})
      require(seconds >= 0 && std::isfinite(seconds),
              "pipeline: times must be finite and at least 0 s, got {}", seconds);
  }
}

double seconds_of(const PipelineTask& task, const Ids<StageId, StageTimes>& stages) {
  const StageTimes& times = stages[task.stage];
  return task.backward ? times.backward : times.forward;
}

// Returns the time from the begin of the first task to the end of the last one. Adds the number of
// tasks to `tasks`.
double simulated_seconds(const PipelineOrder& order, int64_t micro_batches,
                         const Ids<StageId, StageTimes>& stages,
                         const Ids<StageId, DeviceId>& devices, int64_t& tasks) {
  Links links = make_links(order, stages, devices);
  std::map<DeviceId, double> free;  // Indexed by device.
  for_each_task(order, micro_batches, [&](const PipelineTask& task, int64_t) {
    ++tasks;
    const StageId s = task.stage;
    double& now = free[devices[s]];
    for (Link& link : links[s][task.backward]) now = std::max(now, link.receive());
    now += seconds_of(task, stages);
    // Stages that send to `s` in the other direction receive a message from `s` in this direction.
    for (const Link& back : links[s][task.backward ? 0 : 1]) {
      auto& into = links[back.from][task.backward];
      std::find_if(into.begin(), into.end(), [&](const Link& l) { return l.from == s; })->send(now);
    }
  });
  double last = 0;
  for (const auto& [device, seconds] : free) last = std::max(last, seconds);
  return last;
}

double total_seconds(const PipelineOrder& order, int64_t micro_batches,
                     const Ids<StageId, StageTimes>& stages, const Ids<StageId, DeviceId>& devices,
                     int64_t& tasks) {
  const auto seconds = [&](int64_t count) {
    return simulated_seconds(order, count, stages, devices, tasks);
  };
  if (micro_batches <= kMaxSimulated) return seconds(micro_batches);
  const double all = seconds(kMaxSimulated), half = seconds(kMaxSimulated / 2);
  return all +
         static_cast<double>(micro_batches - kMaxSimulated) * 2 / kMaxSimulated * (all - half);
}

}  // namespace

PipelineTimes simulate_pipeline(const PipelineOrder& order, int64_t micro_batches,
                                const Ids<StageId, StageTimes>& stages,
                                const Ids<StageId, DeviceId>& devices) {
  check_times(stages, order.stages);
  const Ids<StageId, DeviceId> device_of_stage = devices_of(devices, order.stages);
  const std::set<DeviceId> used(device_of_stage.begin(), device_of_stage.end());
  PipelineTimes result;
  for (const DeviceId last = *used.rbegin(); !result.busy.contains(last);) result.busy.push_back(0);
  for (const PipelineTask& task : order.tasks) {
    result.busy[device_of_stage[task.stage]] +=
        static_cast<double>(micro_batches) * seconds_of(task, stages);
  }

  result.total = total_seconds(order, micro_batches, stages, device_of_stage, result.tasks);
  double waits = 0;
  for (const DeviceId device : used) waits += result.total - result.busy[device];
  if (result.total > 0) result.bubble = waits / (static_cast<double>(used.size()) * result.total);
  return result;
}

}  // namespace sluice::train
