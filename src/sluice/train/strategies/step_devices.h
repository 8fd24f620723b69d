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
  StepDevices(const Cut& cut, const std::vector<std::optional<BlockGradient>>& gradients,
              const std::vector<AssignedStage>& stages);

  int device(const Task& task) const { return stages_[static_cast<size_t>(task.stage)].device; }
  /// The device of the block that makes a value of the network.
  int device(const Tensor& value) const;
  /// The block that makes a value; absent for fields, seeds and inputs.
  std::optional<size_t> maker(const Tensor& value) const;
  /// The block that loads a field: the first one that reads it, or the first block.
  size_t loader(const Tensor& field) const;

  /// Devices of weights and running variables, by key.
  const std::map<std::string, int>& variables() const { return variables_; }
  /// Keeps the devices that another program has `assigned` to variables.
  void set_devices(const std::map<std::string, int>& assigned);
  /// The first block with a gradient that reads a weight: its update updates the weight.
  size_t updating_block(const std::string& weight) const { return updating_blocks_.at(weight); }

 private:
  const std::vector<AssignedStage>& stages_;
  std::map<TensorId, size_t> loaders_;             ///< Keyed by field.
  std::map<TensorId, size_t> makers_;              ///< Indexed by value.
  std::map<size_t, size_t> stage_;                 ///< Indexed by block.
  std::map<std::string, int> variables_;           ///< Keyed by key.
  std::map<std::string, size_t> updating_blocks_;  ///< Keyed by weight.
};

}  // namespace sluice::train
