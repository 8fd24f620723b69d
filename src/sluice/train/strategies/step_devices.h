#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/strategies/flows.h"

namespace sluice::train {

/// The devices of the blocks, values and variables of a step. A variable is on the device of the
/// first stage that reads it.
class StepDevices {
 public:
  StepDevices(const Cut& cut, const BlockGradients& gradients, const PlacedStages& stages);

  DeviceId device(const Task& task) const { return stages_[task.stage].device; }
  /// The device of the block that makes a value of the network.
  DeviceId device(const Tensor& value) const;
  /// The block that makes a value; absent for fields, seeds and inputs.
  std::optional<BlockId> maker(const Tensor& value) const;
  /// The block that loads a field: the first one that reads it, or the first block.
  BlockId loader(const Tensor& field) const;

  /// Devices of weights and running variables, by key.
  const std::map<std::string, DeviceId>& variables() const { return variables_; }
  /// Variables in `assigned` have the devices that they have in another program.
  void set_devices(const std::map<std::string, DeviceId>& assigned);
  /// The first block with a gradient that reads a weight: its update updates the weight.
  BlockId updating_block(const std::string& weight) const { return updating_blocks_.at(weight); }

 private:
  const PlacedStages& stages_;
  std::map<TensorId, BlockId> loaders_;             ///< Indexed by field.
  std::map<TensorId, BlockId> makers_;              ///< Indexed by value.
  std::map<BlockId, StageId> stage_;                ///< Indexed by block.
  std::map<std::string, DeviceId> variables_;       ///< Indexed by key.
  std::map<std::string, BlockId> updating_blocks_;  ///< Indexed by weight.
};

}  // namespace sluice::train
