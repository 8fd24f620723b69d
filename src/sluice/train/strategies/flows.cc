#include "sluice/train/strategies/flows.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace sluice::train {
namespace {

class Flows {
 public:
  Flows(const Cut& cut, const std::vector<std::optional<BlockGradient>>& gradients,
        const std::set<MicroBatch::Value>& shared, const RemoteActivations* remote)
      : cut_(cut), gradients_(gradients), shared_(shared), remote_(remote) {}

  void forward(const PlacedStage& stage, const FlowEnd& task) {
    begin(stage, task);
    for (const size_t b : stage.blocks) {
      for (const auto& v : MicroBatch::inputs(cut_.blocks[b])) read({false, v});
      for (const auto& v : MicroBatch::outputs(cut_.blocks[b], gradients_[b])) make({false, v});
    }
  }

  void backward(const PlacedStage& stage, const FlowEnd& task) {
    begin(stage, task);
    for (auto b = stage.blocks.rbegin(); b != stage.blocks.rend(); ++b) {
      const auto& gradient = gradients_[*b];
      if (!gradient) continue;
      for (const TakenGradient& t : gradient->taken) {
        const bool from_loss = t.loss.valid();
        read({!from_loss, MicroBatch::value(from_loss ? t.loss : t.value.whole)});
      }
      for (const auto& v : MicroBatch::kept(cut_.blocks[*b], gradient)) {
        if (remote_ == nullptr || !remote_->has(v)) read({false, v});
      }
      for (const Tensor& t : gradient->inputs) make({true, MicroBatch::value(t)});
    }
  }

  std::vector<Flow> all() const {
    std::vector<Flow> result;
    for (const auto& [to, flow] : flows_) result.push_back(flow);
    return result;
  }

 private:
  void begin(const PlacedStage& stage, const FlowEnd& task) {
    device_ = stage.device;
    task_ = task;
  }
  void make(const FlowingValue& value) { made_[value] = task_; }
  void read(const FlowingValue& value) {
    if (!value.is_gradient && shared_.contains(value.value)) return;
    const FlowEnd made = made_.try_emplace(value, task_).first->second;
    Flow& flow = flows_[{value, device_, made.iteration}];
    flow = {value, bytes_of(value), device_, made, task_};
  }
  // A gradient has the spec of its value.
  int64_t bytes_of(const FlowingValue& value) const {
    const Ir ir = cut_.blocks[0].graph.graph().ir();
    return ir.graph(value.value.first).spec(value.value.second).bytes();
  }

  const Cut& cut_;
  const std::vector<std::optional<BlockGradient>>& gradients_;
  const std::set<MicroBatch::Value>& shared_;
  const RemoteActivations* remote_;
  int device_ = 0;
  FlowEnd task_;
  std::map<FlowingValue, FlowEnd> made_;
  std::map<std::tuple<FlowingValue, int, int64_t>, Flow> flows_;
};

}  // namespace

std::vector<Flow> find_flows(const PipelineOrder& order, const std::vector<PlacedStage>& stages,
                             const Cut& cut,
                             const std::vector<std::optional<BlockGradient>>& gradients,
                             const std::set<MicroBatch::Value>& shared,
                             const RemoteActivations* remote) {
  std::vector<PipelineTask> tasks = order.tasks;
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const PipelineTask& a, const PipelineTask& b) { return a.slot < b.slot; });
  Flows flows(cut, gradients, shared, remote);
  for (const PipelineTask& task : tasks) {
    const auto s = static_cast<size_t>(task.stage);
    const FlowEnd end{s, task.backward, order.iteration(task)};
    if (task.backward) {
      flows.backward(stages[s], end);
    } else {
      flows.forward(stages[s], end);
    }
  }
  return flows.all();
}

}  // namespace sluice::train
