#include "sluice/train/strategies/pipeline_layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "sluice/base/error.h"
#include "sluice/train/pipeline/block_times.h"
#include "sluice/train/pipeline/choose_depths.h"
#include "sluice/train/strategies/step_dependences.h"

namespace sluice::train {
namespace {

Schedule schedule_of(const Strategy& strategy) {
  const auto* pipelined = std::get_if<PipelinedExecution>(&strategy);
  return pipelined == nullptr ? Schedule::kSequential : pipelined->schedule;
}

Ids<BlockId, double> seconds_of(const Ids<BlockId, StageTimes>& times) {
  Ids<BlockId, double> seconds;
  for (const StageTimes& t : times) seconds.push_back(t.forward + t.backward);
  return seconds;
}

size_t step_of(const AssignedStage& stage) { return static_cast<size_t>(stage.step); }

// The times and bytes of each stage, and of the messages of its step.
struct StageCosts {
  Ids<StageId, StageTimes> times;
  Ids<StageId, int64_t> activation_bytes;  // For a micro-batch in flight.
};

// Returns the seconds of a message of `bytes` bytes from a stage to the slowest one of the next
// step, and back.
double message_seconds(const PlacedStages& stages, StageId from, int64_t bytes,
                       const Options& options) {
  const DeviceRates& rates = options.rates;
  if (rates.message_seconds == nullptr)
    return rates.latency + static_cast<double>(bytes) / rates.messages;
  StepMessage message{.from = stages[from].device, .replicas = options.replicas, .bytes = bytes};
  for (const AssignedStage& s : stages)
    message.devices = std::max<int>(message.devices, s.device + 1);
  double slowest = 0;
  for (const AssignedStage& next : stages) {
    if (next.step != stages[from].step + 1 || next.device == stages[from].device) continue;
    message.to = next.device;
    slowest = std::max(slowest, rates.message_seconds(message));
  }
  return slowest;
}

StageCosts costs_of(const PlacedStages& stages, const Ids<BlockId, StageTimes>& times,
                    const std::vector<Flow>& flows, const Options& options) {
  StageCosts costs{.times = Ids<StageId, StageTimes>(stages.size()),
                   .activation_bytes = Ids<StageId, int64_t>(stages.size())};
  const size_t steps = step_of(stages.back()) + 1;
  std::vector<int64_t> sent(steps), sent_back(steps);
  for (const Flow& flow : flows) {
    const AssignedStage& maker = stages[flow.made_by.task.stage];
    if (flow.read_by.back().task.runs_backward() && !flow.value.is_gradient)
      costs.activation_bytes[flow.read_by.back().task.stage] += flow.bytes;
    if (maker.device == flow.device) continue;
    // A gradient that a step makes comes back on the way from the step before it.
    if (!flow.value.is_gradient) sent[step_of(maker)] += flow.bytes;
    if (flow.value.is_gradient && maker.step > 0) sent_back[step_of(maker) - 1] += flow.bytes;
  }
  for (const StageId s : stages.ids()) {
    for (const BlockId b : stages[s].blocks) {
      costs.times[s].forward += times[b].forward;
      costs.times[s].backward += times[b].backward;
    }
    const int64_t bytes = std::max(sent[step_of(stages[s])], sent_back[step_of(stages[s])]);
    if (bytes > 0) costs.times[s].message = message_seconds(stages, s, bytes, options);
  }
  return costs;
}

std::vector<MessageBytes> messages_of(const PlacedStages& stages, const std::vector<Flow>& flows) {
  std::map<std::pair<DeviceId, DeviceId>, MessageBytes> pairs;
  for (const Flow& flow : flows) {
    const DeviceId from = stages[flow.made_by.task.stage].device;
    if (from == flow.device) continue;
    MessageBytes& pair =
        pairs.try_emplace({from, flow.device}, MessageBytes{from, flow.device}).first->second;
    (flow.value.is_gradient ? pair.backward : pair.forward) += flow.bytes;
  }
  std::vector<MessageBytes> messages;
  for (const auto& [devices, pair] : pairs) messages.push_back(pair);
  return messages;
}

// The order of the steps of a schedule.
PipelineOrder order_of_steps(Schedule schedule, int steps, nn::RunMode mode) {
  if (mode == nn::RunMode::kEvaluate) return evaluation_order(steps, schedule);
  return training_order(schedule == Schedule::kAuto ? Schedule::kInterleaved : schedule, steps);
}

PipelineOrder order_of_stages(const PipelineOrder& steps, const PlacedStages& stages) {
  Ids<StageId, int> step_of_stage;
  for (const AssignedStage& s : stages) step_of_stage.push_back(s.step);
  return split_stages(steps, step_of_stage);
}

// The flows of a step whose micro-batches run all tasks in one loop.
std::vector<Flow> flows_of_loop(const PipelineOrder& order, const PlacedStages& stages,
                                const NetworkGraph& network, const Cut& cut,
                                const BlockGradients& gradients, const RemoteActivations* remote) {
  const Order loop = staged_order(order, {.micro_batches = order.ramp() + 2});
  return find_flows(tasks_of_micro_batch(loop), stages, cut, gradients, shared_values(network),
                    remote);
}

Order phases_of(const PhasedExecution& phased, const PlacedStages& stages,
                const StepDependences& step) {
  if (has_groups(phased)) {
    const PipelineOrder steps = training_order(Schedule::kGrouped, stages.back().step + 1);
    return grouped_order(order_of_stages(steps, stages),
                         phased.group == 0 ? step.counts.micro_batches : phased.group, step);
  }
  std::vector<PhasedBlocks> blocks;
  for (const BlockId b : step.blocks.ids())
    blocks.push_back({.first = b, .has_gradient = step.blocks[b].has_gradient});
  return phased_order(blocks, MicroBatchForm::kInLine,
                      step.counts.has_norm ? PhasedUpdates::kApart : PhasedUpdates::kInBackward,
                      false, step.counts);
}

PipelineCosts pipeline_costs(const PlacedStages& stages, const StageCosts& costs,
                             const Ids<DeviceId, int64_t>& budgets) {
  PipelineCosts result{
      .stages = costs.times, .activation_bytes = costs.activation_bytes, .budgets = budgets};
  for (const AssignedStage& stage : stages) {
    result.steps.push_back(stage.step);
    result.devices.push_back(stage.device);
  }
  return result;
}

// Adds the stages of a plan, and its times by its order.
void add_stages(const PlacedStages& stages, const Cut& cut, const StageCosts& costs,
                int64_t micro_batches, PipelinePlan& plan) {
  const Ids<StageId, int64_t> in_flight =
      max_in_flight(staged_order(plan.order, {.micro_batches = micro_batches}), stages.size());
  Ids<StageId, DeviceId> devices;
  for (const StageId s : stages.ids()) {
    StagePlan& stage = plan.stages.emplace_back();
    for (const BlockId b : stages[s].blocks) {
      stage.blocks.push_back(cut.blocks[b].name);
      for (const WeightUse& w : cut.blocks[b].weights)
        stage.parameters += w.use == 0 ? w.input.spec().elements() : 0;
    }
    stage.device = stages[s].device;
    devices.push_back(stage.device);
    stage.in_flight = in_flight[s];
    stage.times = costs.times[s];
    stage.activation_bytes = costs.activation_bytes[s];
  }
  plan.times = simulate_pipeline(plan.order, micro_batches, costs.times, devices);
}

}  // namespace

PlacedStages stages_of(const Strategy& strategy, const NetworkGraph& network, const Cut& cut,
                       const Ids<BlockId, StageTimes>& times) {
  if (const auto* pipelined = std::get_if<PipelinedExecution>(&strategy))
    return assign_stages(pipelined->stages, network, cut, seconds_of(times));
  if (const auto* sharded = std::get_if<ShardedExecution>(&strategy))
    return assign_stages(sharded->stages, network, cut, seconds_of(times));
  if (const auto* ordered = std::get_if<OrderedExecution>(&strategy))
    return assign_stages(ordered->stages, network, cut, seconds_of(times));
  if (const auto* phased = std::get_if<PhasedExecution>(&strategy); phased && phased->stages)
    return assign_stages(*phased->stages, network, cut, seconds_of(times));
  AssignedStage all{.blocks = {}, .device = DeviceId(kInheritDevice)};
  for (const BlockId b : cut.blocks.ids()) all.blocks.push_back(b);
  return {all};
}

bool has_groups(const Strategy& strategy) {
  const auto* phased = std::get_if<PhasedExecution>(&strategy);
  return phased != nullptr && (phased->stages || phased->group != 0);
}

std::set<MicroBatch::Value> shared_values(const NetworkGraph& network) {
  std::set<MicroBatch::Value> shared;
  for (const auto& [name, whole] : network.inputs) shared.insert(MicroBatch::value(whole));
  return shared;
}

PipelineLayout lay_out(const Strategy& strategy, const NetworkGraph& network, const Cut& cut,
                       const BlockGradients& gradients, const TrainedWeights& weights,
                       const RemoteActivations* remote, nn::RunMode mode, const Options& options) {
  const Ids<BlockId, StageTimes> times = block_times(cut, gradients, options.rates);
  PipelineLayout layout{.stages = stages_of(strategy, network, cut, times)};
  const auto* ordered = std::get_if<OrderedExecution>(&strategy);
  if (ordered != nullptr || std::holds_alternative<PhasedExecution>(strategy)) {
    const StepDependences step =
        step_dependences(network, cut, gradients, weights, layout.stages, options, mode);
    require(ordered == nullptr || ordered->order != nullptr,
            "ordered execution: requires a function that orders tasks");
    layout.order = ordered != nullptr
                       ? ordered->order(step)
                       : phases_of(std::get<PhasedExecution>(strategy), layout.stages, step);
    return layout;
  }
  const Schedule schedule = schedule_of(strategy);
  PipelineOrder order =
      order_of_stages(order_of_steps(schedule, layout.stages.back().step + 1, mode), layout.stages);
  if (!std::holds_alternative<ResidentExecution>(strategy)) {
    const auto flows = [&] {
      return flows_of_loop(order, layout.stages, network, cut, gradients, remote);
    };
    const StageCosts costs = costs_of(layout.stages, times, flows(), options);
    const auto* pipelined = std::get_if<PipelinedExecution>(&strategy);
    const bool chooses = schedule == Schedule::kAuto;
    require(pipelined == nullptr || pipelined->activation_budgets.empty() || chooses,
            "activation_budgets: require the schedule auto, got {}", to_string(schedule));
    if (chooses && mode == nn::RunMode::kTrain) {
      const std::vector<int> depths =
          choose_depths(pipeline_costs(layout.stages, costs,
                                       Ids<DeviceId, int64_t>(pipelined->activation_budgets)),
                        options.accumulate);
      order = order_of_stages(training_order(depths), layout.stages);
    }
    layout.plan = PipelinePlan{.schedule = schedule,
                               .order = order,
                               .messages = messages_of(layout.stages, flows()),
                               .rates = options.rates};
    add_stages(layout.stages, cut, costs, options.accumulate, *layout.plan);
  }
  layout.order = staged_order(order, counts_of(options, mode));
  return layout;
}

PipelineLayout lay_out_phases(const PlacedStages& stages, const std::vector<PhasedBlocks>& blocks,
                              PhasedUpdates updates, bool has_seeds, const OrderCounts& counts) {
  return {.stages = stages,
          .order = phased_order(blocks, MicroBatchForm::kLoop, updates, has_seeds, counts),
          .plan = {}};
}

PlacedStages stages_of(const BlockDevices& block_devices, const Cut& cut) {
  PlacedStages stages;
  std::pair<DeviceId, int> device{kInheritDevice, 0};
  if (!block_devices.empty()) device = block_devices.begin()->second;
  for (const BlockId b : cut.blocks.ids()) {
    const auto found = block_devices.find(cut.blocks[b].name);
    const bool first = stages.empty();
    const std::pair<DeviceId, int> next = found == block_devices.end() ? device : found->second;
    if (first || next != device) {
      const int step = first ? 0 : stages.back().step + (next.second != device.second);
      stages.push_back({.device = next.first, .step = step});
    }
    device = next;
    stages.back().blocks.push_back(b);
  }
  return stages;
}

PipelineLayout lay_out_evaluation(const PlacedStages& stages, const Strategy& strategy,
                                  const Options& options, const std::vector<PhasedBlocks>& rows) {
  const OrderCounts counts = counts_of(options, nn::RunMode::kEvaluate);
  if (!rows.empty()) return {.stages = stages, .order = row_order(rows, counts), .plan = {}};
  const PipelineOrder steps =
      order_of_steps(schedule_of(strategy), stages.back().step + 1, nn::RunMode::kEvaluate);
  return {
      .stages = stages, .order = staged_order(order_of_stages(steps, stages), counts), .plan = {}};
}

}  // namespace sluice::train
