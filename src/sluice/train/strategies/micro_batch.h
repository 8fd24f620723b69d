#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sluice/train/cut/block_gradients.h"

namespace sluice::train {

/// The values of a network that wait in remote memory between their last forward and their first
/// backward use. Each has a buffer of one entry, which all micro-batches use in turn.
class RemoteActivations {
 public:
  /// Selects the values that gradient graphs read, but not those that the last block's gradient
  /// reads at once, and none with fewer than `min_elements` elements.
  RemoteActivations(const Cut& cut, const std::vector<std::optional<BlockGradient>>& gradients,
                    int64_t min_elements);

  /// A value is a network tensor that crosses a border of blocks, or an inner tensor of a block.
  using Value = std::pair<GraphId, TensorId>;
  /// Whether the value is stored behind block `block`.
  bool stores(const Value& value, size_t block) const;
  bool has(const Value& value) const { return last_use_.contains(value); }
  RemoteBuffer buffer(const Value& value, const TensorSpec& spec, Ir ir);

 private:
  std::map<Value, size_t> last_use_;  ///< The last block that reads or makes the value.
  std::map<Value, RemoteBuffer> buffers_;
};

/// Emits one micro-batch of a network into a graph, a block at a time: the blocks forward in
/// ascending order, then their gradients in descending order.
class MicroBatch {
 public:
  /// A tensor of `graph` for each use of a weight, by WeightUse::name().
  using ByUse = std::map<std::string, Tensor>;
  using Weights = std::function<Tensor(const std::string& key)>;

  /// `values` has a tensor of `graph` for each field and seed of the network, by network tensor.
  /// `activations` may be null; transfers of activations have mode `io_mode`.
  MicroBatch(Graph& graph, const Cut& cut,
             const std::vector<std::optional<BlockGradient>>& gradients,
             std::map<TensorId, Tensor> values, RemoteActivations* activations = nullptr,
             IoMode io_mode = IoMode::kCompute);

  /// Runs block `b`. `weights` returns the tensor of `graph` for a weight's key.
  void forward(size_t b, const Weights& weights);
  /// Runs the gradient graph of block `b`, if it has one. `accumulators`: the tensors that
  /// gradients are added to, and their counter; empty if gradient graphs return the gradients.
  /// Returns these.
  ByUse backward(size_t b, const Weights& weights, const ByUse& accumulators,
                 const Tensor& counter);
  /// Returns the tensor of `graph` that stands for a tensor of the network.
  const Tensor& operator[](const Tensor& whole) const { return values_.at(whole.id()); }

 private:
  using Value = RemoteActivations::Value;
  Value value_of(size_t b, const Tensor& part) const;
  Tensor activation(size_t b, const Tensor& part);

  Graph& graph_;
  const Cut& cut_;
  const std::vector<std::optional<BlockGradient>>& gradients_;
  std::map<TensorId, Tensor> values_;
  RemoteActivations* activations_;
  IoMode io_mode_;
  std::vector<std::optional<CallSiteInfo>> calls_;  ///< The forward call of each block.
  std::map<TensorId, Tensor> chains_;               ///< Gradients of values, by network tensor.
  std::map<Value, Tensor> loaded_;
};

}  // namespace sluice::train
