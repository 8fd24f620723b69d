#include "sluice/train/strategies/flowing_values.h"

#include <algorithm>

namespace sluice::train {
namespace {

Tensor find(const MicroBatchValues& values, const FlowingValue& value) {
  if (value.is_gradient) {
    const auto found = values.gradients.find(value.value.second);
    return found == values.gradients.end() ? Tensor() : found->second;
  }
  const auto found = values.forward.find(value.value);
  return found == values.forward.end() ? Tensor() : found->second;
}

}  // namespace

FlowingValues::FlowingValues(const Cut& cut,
                             const std::vector<std::optional<BlockGradient>>& gradients,
                             const std::vector<PlacedStage>& stages,
                             const RemoteActivations* remote, std::vector<Flow> flows)
    : cut_(cut), gradients_(gradients), stages_(stages), remote_(remote), flows_(std::move(flows)) {
  for (const Flow& flow : flows_) {
    const Task& maker = flow.made_by.task;
    made_by_[{maker.kind, key_of(maker)}].push_back(&flow);
    const int64_t made = maker.micro_batch.constant;
    for (int64_t age = 1; age <= flow.read_by.iteration - flow.made_by.iteration; ++age) {
      const Slot slot{{flow.value, flow.device}, made - age};
      if (std::find(slots_.begin(), slots_.end(), slot) == slots_.end()) slots_.push_back(slot);
    }
  }
}

MicroBatchValues FlowingValues::read(int64_t micro_batch, const Task& task) const {
  MicroBatchValues values;
  const auto known = values_.find(micro_batch);
  if (known == values_.end()) return values;
  const int device = stages_[static_cast<size_t>(task.stage)].device;
  const auto add = [&](const std::vector<FlowingValue>& reads) {
    for (const FlowingValue& v : reads) {
      const auto t = known->second.find({v, device});
      if (t == known->second.end()) continue;
      if (v.is_gradient) {
        values.gradients.emplace(v.value.second, t->second);
      } else {
        values.forward.emplace(v.value, t->second);
      }
    }
  };
  for (const size_t b : blocks_of(task, stages_)) {
    if (task.runs_forward()) add(reads_forward(cut_.blocks[b]));
    if (task.runs_backward()) add(reads_backward(cut_.blocks[b], gradients_[b], remote_));
  }
  return values;
}

void FlowingValues::write(int64_t micro_batch, const Task& task, const MicroBatchValues& found,
                          const MicroBatchValues& values) {
  const auto flows = made_by_.find({task.kind, key_of(task)});
  if (flows == made_by_.end()) return;
  for (const Flow* flow : flows->second) {
    const Tensor made = find(values, flow->value);
    if (made.valid() && made != find(found, flow->value))
      values_[micro_batch].insert_or_assign({flow->value, flow->device}, made);
  }
}

Tensors FlowingValues::enter_loop(Graph& body) {
  outside_ = std::exchange(values_, {});
  Tensors carried;
  for (const Slot& slot : slots_) {
    const Tensor& t = outside_.at(slot.micro_batch).at(slot.reader);
    carried.push_back(t);
    values_[slot.micro_batch].emplace(slot.reader, body.input(t.spec(), t.name()));
  }
  return carried;
}

Tensors FlowingValues::results_of_loop() const {
  Tensors results;
  for (const Slot& slot : slots_)
    results.push_back(values_.at(slot.micro_batch + 1).at(slot.reader));
  return results;
}

void FlowingValues::leave_loop(int64_t trips, const Tensors& results) {
  values_ = std::exchange(outside_, {});
  for (size_t i = 0; i < slots_.size(); ++i)
    values_[trips + slots_[i].micro_batch].insert_or_assign(slots_[i].reader, results[i]);
}

}  // namespace sluice::train
