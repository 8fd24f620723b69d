#include "sluice/train/strategies/step_devices.h"

namespace sluice::train {

StepDevices::StepDevices(const Cut& cut, const BlockGradients& gradients,
                         const PlacedStages& stages)
    : stages_(stages) {
  for (const BlockId b : cut.blocks.ids()) {
    for (const BlockValue& v : cut.blocks[b].inputs) loaders_.emplace(v.whole.id(), b);
  }
  for (const StageId s : stages.ids()) {
    for (const BlockId b : stages[s].blocks) {
      const BlockGraph& block = cut.blocks[b];
      stage_[b] = s;
      for (const BlockValue& v : block.outputs) makers_.emplace(v.whole.id(), b);
      for (const WeightUse& w : block.weights) {
        variables_.emplace(w.key, stages[s].device);
        if (gradients[b]) updating_blocks_.emplace(w.key, b);
      }
      for (const RunningUse& u : block.updates) variables_.emplace(u.key, stages[s].device);
    }
  }
}

DeviceId StepDevices::device(const Tensor& value) const {
  return stages_[stage_.at(maker(value).value())].device;
}

std::optional<BlockId> StepDevices::maker(const Tensor& value) const {
  const auto found = makers_.find(value.id());
  return found == makers_.end() ? std::nullopt : std::optional(found->second);
}

BlockId StepDevices::loader(const Tensor& field) const {
  const auto found = loaders_.find(field.id());
  return found == loaders_.end() ? BlockId(0) : found->second;
}

void StepDevices::set_devices(const std::map<std::string, DeviceId>& assigned) {
  for (const auto& [key, device] : assigned) variables_.insert_or_assign(key, device);
}

}  // namespace sluice::train
