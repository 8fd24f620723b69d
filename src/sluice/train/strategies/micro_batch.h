#pragma once
#include <map>
#include <optional>
#include <vector>

#include "sluice/train/cut/block_gradients.h"

namespace sluice::train {

/// Emits one micro-batch of a network into a graph: the blocks forward, then their gradients in
/// descending order.
class MicroBatch {
 public:
  /// A tensor of `graph` for each use of a weight, by WeightUse::name().
  using ByUse = std::map<std::string, Tensor>;

  /// `values` has a tensor of `graph` for each field and seed of the network, by network tensor.
  MicroBatch(Graph& graph, const Cut& cut,
             const std::vector<std::optional<BlockGradient>>& gradients,
             std::map<TensorId, Tensor> values)
      : graph_(graph), cut_(cut), gradients_(gradients), values_(std::move(values)) {}

  /// Runs the blocks. `weights` has a tensor for each key of a weight.
  void forward(const nn::NamedTensors& weights);
  /// Runs the gradient graphs. `accumulators`: the tensors that gradients are added to, and their
  /// counter; empty if gradient graphs return the gradients. Returns these.
  ByUse backward(const ByUse& accumulators, const Tensor& counter);
  /// Returns the tensor of `graph` that stands for a tensor of the network.
  const Tensor& operator[](const Tensor& whole) const { return values_.at(whole.id()); }

 private:
  Graph& graph_;
  const Cut& cut_;
  const std::vector<std::optional<BlockGradient>>& gradients_;
  std::map<TensorId, Tensor> values_;
  std::vector<CallSiteInfo> calls_;  ///< The forward call of each block.
};

}  // namespace sluice::train
