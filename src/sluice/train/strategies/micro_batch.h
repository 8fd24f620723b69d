#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sluice/train/cut/block_gradients.h"

namespace sluice::train {

/// The values of a network that wait in remote memory for their backward uses. Each has a buffer.
class RemoteActivations {
 public:
  /// When a value is stored.
  enum class Stores {
    kAtLastUse,  ///< The last block that reads or computes it loads it. Its gradients run later.
    /// The block that computes or loads it stores it. Gradients may run before other blocks.
    kAtOnce,
  };
  /// Selects the values that gradient graphs read. Values that the last block stores are not
  /// selected, as its gradient may follow at once, nor are values with fewer than `min_elements`
  /// elements.
  RemoteActivations(const Cut& cut, const BlockGradients& gradients, int64_t min_elements,
                    Stores stores);

  /// Sets the number of entries of each buffer: one for each micro-batch in flight.
  void set_entries(int64_t entries) { entries_ = entries; }

  /// A value is a network tensor that crosses a border of blocks, or an inner tensor of a block.
  using Value = std::pair<GraphId, TensorId>;
  /// Whether the value is stored after block `block`.
  bool stores(const Value& value, BlockId block) const;
  bool has(const Value& value) const { return stored_after_.contains(value); }
  RemoteBuffer buffer(const Value& value, const TensorSpec& spec, Ir ir);

 private:
  int64_t entries_ = 1;
  std::map<Value, BlockId> stored_after_;  ///< The block that stores the value.
  std::map<Value, RemoteBuffer> buffers_;
};

/// The tensors of a graph that represent the values of a micro-batch.
struct MicroBatchValues {
  /// Tensors of the network that cross a border of blocks, and inner tensors of blocks that
  /// gradients read.
  std::map<RemoteActivations::Value, Tensor> forward;
  /// Gradients of tensors of the network that cross a border.
  std::map<TensorId, Tensor> gradients;
};

/// Emits parts of one micro-batch of a network into a graph, a block at a time: the blocks forward
/// in ascending order, then their gradients in descending order.
class MicroBatch {
 public:
  using Value = RemoteActivations::Value;
  /// A tensor of `graph` for each use of a weight, by WeightUse::name().
  using ByUse = std::map<std::string, Tensor>;
  using Weights = std::function<Tensor(const std::string& key)>;

  /// `values` has what earlier parts have computed, and fields and seeds of the network.
  /// `activations` may be null; transfers of activations have mode `io_mode` and this entry.
  MicroBatch(Graph& graph, const Cut& cut, const BlockGradients& gradients, MicroBatchValues values,
             RemoteActivations* activations = nullptr, IoMode io_mode = IoMode::kCompute,
             RemoteEntry entry = 0);

  /// Runs block `b`. `weights` returns the tensor of `graph` for a weight's key.
  void forward(BlockId b, const Weights& weights);
  /// Runs the gradient graph of block `b`, if it has one. `accumulators`: the tensors that
  /// gradients are added to, and their counter; empty if gradient graphs return the gradients.
  /// Returns the gradients that the graph returns.
  ByUse backward(BlockId b, const Weights& weights, const ByUse& accumulators,
                 const Tensor& counter);
  /// Returns the tensor of `graph` that represents a tensor of the network.
  const Tensor& operator[](const Tensor& whole) const { return values_.forward.at(value(whole)); }
  void set(const Tensor& whole, const Tensor& t) { values_.forward.emplace(value(whole), t); }
  const MicroBatchValues& values() const { return values_; }

  /// Three lists of values: those that block `b` reads from earlier blocks, fields and seeds; those
  /// that it gives; and those, other than gradients, that its gradient graph reads.
  static std::vector<Value> inputs(const BlockGraph& block);
  static std::vector<Value> outputs(const BlockGraph& block,
                                    const std::optional<BlockGradient>& gradient);
  static std::vector<Value> kept(const BlockGraph& block,
                                 const std::optional<BlockGradient>& gradient);
  static Value value(const Tensor& whole) { return {whole.graph_id(), whole.id()}; }

 private:
  Tensor activation(BlockId b, const Tensor& part);
  void store_activations(BlockId b);

  Graph& graph_;
  const Cut& cut_;
  const BlockGradients& gradients_;
  MicroBatchValues values_;
  RemoteActivations* activations_;
  IoMode io_mode_;
  RemoteEntry entry_;
  std::map<Value, Tensor> loaded_;
};

}  // namespace sluice::train
