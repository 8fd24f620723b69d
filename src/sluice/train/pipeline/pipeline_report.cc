#include "sluice/train/pipeline/pipeline_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace sluice::train {
namespace {

double seconds_of(const StagePlan& s) { return s.times.forward + s.times.backward; }

}  // namespace

StageId slowest_stage(const PipelinePlan& plan) {
  const auto found = std::max_element(
      plan.stages.begin(), plan.stages.end(),
      [](const StagePlan& a, const StagePlan& b) { return seconds_of(a) < seconds_of(b); });
  return StageId(found - plan.stages.begin());
}

double imbalance(const PipelinePlan& plan) {
  double sum = 0;
  for (const StagePlan& s : plan.stages) sum += seconds_of(s);
  const double mean = sum / static_cast<double>(plan.stages.size());
  return mean > 0 ? seconds_of(plan.stages[slowest_stage(plan)]) / mean : 1;
}

report::Pipeline pipeline_report(const Training& training) {
  const PipelinePlan& plan = *training.pipeline;
  report::Pipeline p{.schedule = std::string(to_string(plan.schedule)),
                     .micro_batches = training.accumulate,
                     .period = plan.order.period,
                     .slots = plan.order.slots(training.accumulate),
                     .ramp_slots = plan.order.ramp() * plan.order.period,
                     .seconds = plan.times.total,
                     .bubble = plan.times.bubble,
                     .imbalance = imbalance(plan),
                     .slowest = slowest_stage(plan)};
  for (const StagePlan& s : plan.stages)
    p.stages.push_back({.blocks = fmt::format("{}", fmt::join(s.blocks, "+")),
                        .device = s.device,
                        .forward_seconds = s.times.forward,
                        .backward_seconds = s.times.backward,
                        .message_seconds = s.times.message,
                        .in_flight = s.in_flight,
                        .activation_bytes = s.activation_bytes,
                        .parameters = s.parameters});
  for (const PipelineTask& t : plan.order.tasks) p.tasks.push_back({t.stage, t.backward, t.slot});
  return p;
}

}  // namespace sluice::train
