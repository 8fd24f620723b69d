#include "tools/plan/pipeline_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "sluice/base/ids/ids_format.h"
#include "sluice/report/plan_report.h"
#include "sluice/report/traffic.h"
#include "sluice/train/pipeline/pipeline_report.h"
#include "sluice/train/pipeline/schedule_table.h"

namespace sluice::tool {
namespace {

using train::MessageBytes;
using train::PipelinePlan;
using train::StagePlan;

// Bytes of the messages between two devices: of a micro-batch, and of the rest of a step.
struct Sent {
  MessageBytes micro_batch;
  int64_t update = 0;
};

std::vector<Sent> sent_bytes(const train::Training& training, const exe::Executable& executable) {
  std::vector<Sent> result;
  const report::TrafficCounter counter(executable);
  for (const report::Messages& m : counter.messages_of(executable.program("train"))) {
    Sent sent{{train::DeviceId(m.from), train::DeviceId(m.to)}, m.bytes};
    for (const MessageBytes& b : training.pipeline->messages) {
      if (b.from == m.from && b.to == m.to) sent.micro_batch = b;
    }
    sent.update /= training.device_iterations;
    sent.update -= training.accumulate * (sent.micro_batch.forward + sent.micro_batch.backward);
    result.push_back(sent);
  }
  return result;
}

std::string blocks_of(const StagePlan& stage) {
  const std::string& first = stage.blocks.front();
  return stage.blocks.size() == 1 ? first : fmt::format("{} … {}", first, stage.blocks.back());
}

// Micro-batches of the table of an order, at most `all`.
int64_t shown(const train::PipelineOrder& order, int64_t all) {
  constexpr int64_t kSteady = 4;
  return std::min(all, 2 * order.ramp() + kSteady);
}

std::string slots_text(int64_t first, int64_t last) {
  return first > last    ? "none"
         : first == last ? fmt::format("{}", first)
                         : fmt::format("{} to {}", first, last);
}

}  // namespace

std::vector<std::string> pipeline_lines(const train::Training& training,
                                        const exe::Executable& executable) {
  const PipelinePlan& plan = *training.pipeline;
  const train::StageId slow = slowest_stage(plan);
  std::vector<std::string> lines{fmt::format(
      "{} stages, {}: bubble {:.1f} % in {:.3f} ms at fixed rates; slowest stage {} ({:.2f} x the "
      "mean)",
      plan.stages.size(), to_string(plan.schedule), 100 * plan.times.bubble, plan.times.total * 1e3,
      slow, imbalance(plan))};
  lines.push_back(
      fmt::format("  rates: {:g} GF/s, copies {:g} GB/s, messages {:g} GB/s and {:g} us",
                  plan.rates.flops / 1e9, plan.rates.copies / 1e9, plan.rates.messages / 1e9,
                  plan.rates.latency * 1e6));
  const std::vector<Sent> sent = sent_bytes(training, executable);
  for (int device = 0; device < training.devices; ++device) {
    std::string stages, messages;
    for (const train::StageId s : plan.stages.ids()) {
      const StagePlan& stage = plan.stages[s];
      if (stage.device != device) continue;
      stages += fmt::format("{} stage {} ({}) {:.3f} + {:.3f} ms, {} in flight of {} bytes",
                            stages.empty() ? ":" : ";", s, blocks_of(stage),
                            stage.times.forward * 1e3, stage.times.backward * 1e3, stage.in_flight,
                            report::grouped(stage.activation_bytes));
    }
    for (const Sent& m : sent) {
      if (m.micro_batch.from != device) continue;
      messages += fmt::format("{} {} + {} bytes to device {}", messages.empty() ? "" : ";",
                              report::grouped(m.micro_batch.forward + m.micro_batch.backward),
                              report::grouped(m.update), m.micro_batch.to);
    }
    lines.push_back(fmt::format("  device {}{}", device, stages));
    if (!messages.empty())
      lines.push_back(fmt::format("    sends a micro-batch + an update:{}", messages));
  }
  std::vector<int> shared;  // Devices that the workers serve.
  for (const exe::DeviceId d : executable.devices.ids()) {
    if (!executable.devices[d].queued) shared.push_back(d);
  }
  if (shared.size() > 1)
    lines.push_back(fmt::format("  devices {} share {} threads: a kernel of one uses all of them",
                                fmt::join(shared, ", "),
                                executable.devices[exe::DeviceId(0)].workers));
  return lines;
}

std::string schedule_text(const train::Training& training) {
  const PipelinePlan& plan = *training.pipeline;
  const int64_t all = training.accumulate, count = shown(plan.order, all);
  Ids<train::StageId, train::DeviceId> devices;
  for (const StagePlan& s : plan.stages) devices.push_back(s.device);
  const int64_t ramp = plan.order.ramp() * plan.order.period;
  const int64_t end = plan.order.slots(all);
  const int64_t steady_end = std::max(ramp, end - ramp);
  std::string text = schedule_table(plan.order, count, devices);
  if (count < all) text += fmt::format("The table has {} of {} micro-batches.\n", count, all);
  text += fmt::format("ramp-up: slots {}; steady state: {}; ramp-down: {}; then the update\n",
                      slots_text(1, std::min(ramp, end)), slots_text(ramp + 1, steady_end),
                      slots_text(steady_end + 1, end));
  if (plan.schedule == train::Schedule::kGrouped && ramp < end)
    text += fmt::format("With the last forward and backward task as one, {} slots ramp up.\n",
                        ramp - 1);
  return text;
}

void add_pipeline(const train::Training& training, const exe::Executable& executable,
                  JsonRecord& record) {
  const PipelinePlan& plan = *training.pipeline;
  record.add("pipeline_schedule", std::string(to_string(plan.schedule)));
  record.add("pipeline_micro_batches", training.accumulate);
  record.add("pipeline_seconds", plan.times.total);
  record.add("pipeline_bubble", plan.times.bubble);
  record.add("pipeline_simulated_tasks", plan.times.tasks);
  record.add("pipeline_slowest_stage", static_cast<int64_t>(slowest_stage(plan)));
  record.add("pipeline_imbalance", imbalance(plan));
  record.add("pipeline_rates.flops", plan.rates.flops);
  record.add("pipeline_rates.copies", plan.rates.copies);
  record.add("pipeline_rates.messages", plan.rates.messages);
  record.add("pipeline_rates.latency", plan.rates.latency);
  record.add("pipeline_table", schedule_text(training));
  std::vector<JsonRecord> devices;
  for (int d = 0; d < training.devices; ++d) {
    JsonRecord& device = devices.emplace_back();
    const train::DeviceId id(d);
    device.add("busy_seconds", plan.times.busy.contains(id) ? plan.times.busy[id] : 0.0);
    device.add("workers", int64_t{executable.devices[id].workers});
    device.add("shares_workers", !executable.devices[id].queued && training.devices > 1);
  }
  record.add("pipeline_devices", std::move(devices));
  record.add("pipeline_ramp_slots", plan.order.ramp() * plan.order.period);
  record.add("pipeline_slots", plan.order.slots(training.accumulate));
  std::vector<JsonRecord> stages, messages;
  for (const StagePlan& s : plan.stages) {
    JsonRecord& stage = stages.emplace_back();
    stage.add("blocks", fmt::format("{}", fmt::join(s.blocks, "+")));
    stage.add("device", static_cast<int64_t>(s.device));
    stage.add("forward_seconds", s.times.forward);
    stage.add("backward_seconds", s.times.backward);
    stage.add("message_seconds", s.times.message);
    stage.add("in_flight", s.in_flight);
    stage.add("activation_bytes", s.activation_bytes);
  }
  for (const Sent& m : sent_bytes(training, executable)) {
    JsonRecord& message = messages.emplace_back();
    message.add("from", static_cast<int64_t>(m.micro_batch.from));
    message.add("to", static_cast<int64_t>(m.micro_batch.to));
    message.add("forward_bytes", m.micro_batch.forward);
    message.add("backward_bytes", m.micro_batch.backward);
    message.add("update_bytes", m.update);
  }
  record.add("stages", std::move(stages));
  record.add("messages", std::move(messages));
}

}  // namespace sluice::tool
