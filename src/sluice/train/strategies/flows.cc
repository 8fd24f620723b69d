#include "sluice/train/strategies/flows.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace sluice::train {
namespace {

class Flows {
 public:
  Flows(const Cut& cut, const BlockGradients& gradients, const std::set<MicroBatch::Value>& shared,
        const RemoteActivations* remote)
      : cut_(cut), gradients_(gradients), shared_(shared), remote_(remote) {}

  void forward(const std::vector<BlockId>& blocks) {
    for (const BlockId b : blocks) {
      for (const FlowingValue& v : reads_forward(cut_.blocks[b])) read(v);
      for (const auto& v : MicroBatch::outputs(cut_.blocks[b], gradients_[b])) make({false, v});
    }
  }

  void backward(const std::vector<BlockId>& blocks) {
    for (const BlockId b : blocks) {
      if (!gradients_[b]) continue;
      for (const FlowingValue& v : reads_backward(cut_.blocks[b], gradients_[b], remote_)) read(v);
      for (const Tensor& t : gradients_[b]->inputs) make({true, MicroBatch::value(t)});
    }
  }

  void begin(const MicroBatchTask& task, DeviceId device) {
    device_ = device;
    task_ = task;
    ++position_;
  }

  std::vector<Flow> all() const {
    std::vector<Flow> result;
    for (const auto& [to, flow] : flows_) result.push_back(flow);
    return result;
  }

 private:
  using Maker = std::pair<int64_t, MicroBatchTask>;

  void make(const FlowingValue& value) { made_[value] = {position_, task_}; }
  void read(const FlowingValue& value) {
    if (!value.is_gradient && shared_.contains(value.value)) return;
    const auto& [position, made] = made_.try_emplace(value, position_, task_).first->second;
    Flow& flow = flows_[{value, device_, position}];
    if (flow.read_by.empty()) flow = {value, bytes_of(value), device_, made, {}};
    if (position_ != position || flow.read_by.empty()) flow.read_by.push_back(task_);
  }
  // A gradient has the spec of its value.
  int64_t bytes_of(const FlowingValue& value) const {
    const Ir ir = cut_.blocks.front().graph.graph().ir();
    return ir.graph(value.value.first).spec(value.value.second).bytes();
  }

  const Cut& cut_;
  const BlockGradients& gradients_;
  const std::set<MicroBatch::Value>& shared_;
  const RemoteActivations* remote_;
  DeviceId device_{0};
  int64_t position_ = 0;  ///< Number of the task.
  MicroBatchTask task_;
  std::map<FlowingValue, Maker> made_;
  std::map<std::tuple<FlowingValue, DeviceId, int64_t>, Flow>
      flows_;  ///< Indexed by the maker's position.
};

}  // namespace

bool cross_loops(const std::vector<Flow>& flows) {
  return std::any_of(flows.begin(), flows.end(), [](const Flow& flow) {
    return std::any_of(flow.read_by.begin(), flow.read_by.end(), [&](const MicroBatchTask& reader) {
      return reader.loops != flow.made_by.loops;
    });
  });
}

std::vector<FlowingValue> reads_forward(const BlockGraph& block) {
  std::vector<FlowingValue> values;
  for (const auto& v : MicroBatch::inputs(block)) values.push_back({false, v});
  return values;
}

std::vector<FlowingValue> reads_backward(const BlockGraph& block,
                                         const std::optional<BlockGradient>& gradient,
                                         const RemoteActivations* remote) {
  std::vector<FlowingValue> values;
  if (!gradient) return values;
  for (const TakenGradient& t : gradient->taken) {
    const bool from_loss = t.loss.valid();
    values.push_back({!from_loss, MicroBatch::value(from_loss ? t.loss : t.value.whole)});
  }
  for (const auto& v : MicroBatch::kept(block, gradient)) {
    if (remote == nullptr || !remote->has(v)) values.push_back({false, v});
  }
  return values;
}

std::vector<BlockId> blocks_of(const Task& task, const PlacedStages& stages) {
  std::vector<BlockId> blocks = stages[task.stage].blocks;
  if (task.block) blocks = {BlockId(task.block->constant)};
  if (task.kind == TaskKind::kBackward) std::reverse(blocks.begin(), blocks.end());
  return blocks;
}

std::vector<Flow> find_flows(const std::vector<MicroBatchTask>& tasks, const PlacedStages& stages,
                             const Cut& cut, const BlockGradients& gradients,
                             const std::set<MicroBatch::Value>& shared,
                             const RemoteActivations* remote) {
  Flows flows(cut, gradients, shared, remote);
  for (const MicroBatchTask& t : tasks) {
    flows.begin(t, stages[t.task.stage].device);
    const std::vector<BlockId> blocks = blocks_of(t.task, stages);
    if (t.task.runs_forward()) flows.forward(blocks);
    if (t.task.runs_backward()) flows.backward(blocks);
  }
  return flows.all();
}

}  // namespace sluice::train
