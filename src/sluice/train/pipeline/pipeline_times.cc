#include "sluice/train/pipeline/pipeline_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <set>

#include "sluice/base/error.h"
#include "sluice/train/pipeline/stage_devices.h"
#include "sluice/train/pipeline/task_walk.h"

namespace sluice::train {
namespace {

// The messages that a stage receives from one neighbour.
struct Link {
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

// Links into each stage: [0] from the stage before it, [1] from the stage after it.
using Links = std::vector<std::array<Link, 2>>;

Links make_links(const std::vector<StageTimes>& stages, const std::vector<int>& devices) {
  Links links(stages.size());
  for (size_t s = 0; s + 1 < stages.size(); ++s) {
    if (devices[s] == devices[s + 1]) continue;
    links[s + 1][0].seconds = stages[s].message;
    links[s][1].seconds = stages[s].message;
  }
  return links;
}

void check_times(const std::vector<StageTimes>& stages, int count) {
  require(stages.size() == static_cast<size_t>(count),
          "pipeline: must have the times of each of {} stages, got {}", count, stages.size());
  for (const StageTimes& times : stages) {
    for (const double seconds : {times.forward, times.backward, times.message})
      require(seconds >= 0 && std::isfinite(seconds),
              "pipeline: times must be finite and at least 0 s, got {}", seconds);
  }
}

double seconds_of(const PipelineTask& task, const std::vector<StageTimes>& stages) {
  const StageTimes& times = stages[static_cast<size_t>(task.stage)];
  return task.backward ? times.backward : times.forward;
}

}  // namespace

PipelineTimes simulate_pipeline(const PipelineOrder& order, int64_t micro_batches,
                                const std::vector<StageTimes>& stages,
                                const std::vector<int>& devices) {
  check_times(stages, order.stages);
  const std::vector<int> device_of_stage = devices_of(devices, order.stages);
  const std::set<int> used(device_of_stage.begin(), device_of_stage.end());
  std::vector<double> free(static_cast<size_t>(*used.rbegin()) + 1);
  PipelineTimes result;
  result.busy.resize(free.size());
  for (const PipelineTask& task : order.tasks) {
    const int device = device_of_stage[static_cast<size_t>(task.stage)];
    result.busy[static_cast<size_t>(device)] +=
        static_cast<double>(micro_batches) * seconds_of(task, stages);
  }

  Links links = make_links(stages, device_of_stage);
  for_each_task(order, micro_batches, [&](const PipelineTask& task, int64_t) {
    const auto s = static_cast<size_t>(task.stage);
    double& now = free[static_cast<size_t>(device_of_stage[s])];
    const bool receives = task.backward ? s + 1 < stages.size() : s > 0;
    const bool sends = task.backward ? s > 0 : s + 1 < stages.size();
    if (receives) now = std::max(now, links[s][task.backward].receive());
    now += seconds_of(task, stages);
    if (sends) links[task.backward ? s - 1 : s + 1][task.backward].send(now);
  });

  result.total = *std::max_element(free.begin(), free.end());
  double waits = 0;
  for (const int device : used) waits += result.total - result.busy[static_cast<size_t>(device)];
  if (result.total > 0) result.bubble = waits / (static_cast<double>(used.size()) * result.total);
  return result;
}

}  // namespace sluice::train
