#pragma once
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "sluice/nn/remote.h"
#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/strategies/micro_batch.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// The learning rate of a program on its way to the updates: a stream or a constant. The step size
/// of a parameter group is minus the rate times the group's factor. All strategies use this class.
class StepSizes {
 public:
  StepSizes(Graph& main, const nn::Optimizer& optimizer, const Training& training)
      : main_(main), optimizer_(optimizer), training_(training) {}

  /// Loads the next entry of the rate's stream to a tensor of the entry graph.
  const Tensor& load();
  bool is_loaded() const { return rate_.valid(); }
  /// Returns the step size of a parameter group in the entry graph. Its first call in the program
  /// loads the rate, unless load() did.
  const Tensor& of(size_t group);

 private:
  Graph& main_;
  const nn::Optimizer& optimizer_;
  const Training& training_;
  Tensor rate_;                     ///< Invalid before it is loaded, and if the rate is a constant.
  std::map<size_t, Tensor> sizes_;  ///< By parameter group.
};

/// The weights, running variables and optimizer state of a step without rows, on the device or in
/// remote memory.
class StepVariables {
 public:
  /// Makes the weights and running variables in entry graph `main`, and sets
  /// `training.variables`.
  StepVariables(Graph& main, const NetworkGraph& network, const WeightRules& rules,
                nn::Optimizer& optimizer, const Options& options, Training& training);
  /// Makes the variables of a training program usable in entry graph `main`, which only reads them.
  StepVariables(Graph& main, const StepVariables& trained);

  /// Chooses the devices of weights and running variables, by key. The others stay on the device of
  /// the caller.
  void place(std::map<std::string, int> keys) { devices_ = std::move(keys); }
  const std::map<std::string, int>& devices() const { return devices_; }
  StepSizes& step_sizes() { return step_sizes_; }
  bool is_remote(const std::string& key) const { return weights_.contains(key); }
  /// Returns the whole weight in `graph`, which loads it if it is remote. A weight of the device is
  /// shared with the entry graph `graph`.
  Tensor weight(Graph& graph, const std::string& key) const;

  /// Returns the weights of one visit of a block in `graph`. Weights in `here` are used; other
  /// weights are loaded at their first use.
  MicroBatch::Weights visit(Graph& graph, const nn::NamedTensors& here) const;
  /// Applies the updates of a block's running variables for some micro-batches, in their order.
  /// Remote variables are loaded before the updates and stored after them. `here` has the tensors
  /// of the other variables in `graph`.
  void update_running(Graph& graph, const BlockGraph& block, std::span<const MicroBatch> runs,
                      const nn::NamedTensors& here) const;
  /// Averages the running variables over replicas, in the entry graph.
  void average_running() const;
  /// Divides all gradients by the total weight of the replica's micro-batches, a tensor of the
  /// entry graph, on the current device.
  void divide_by(const Tensor& total_weight) { divisor_ = total_divisor(total_weight); }
  /// Stores a remote running variable that `graph` has loaded and updated.
  void store_running(Graph& graph, const std::string& key, const Tensor& variable) const;
  using Gradient = std::function<Tensor(const std::string& key)>;
  /// Adds the reduction over replicas of a weight's accumulated gradient, the division by the total
  /// weight if there is one, and the hook of gradients. The result is a shard if the weight is
  /// updated in shards.
  Tensor reduced(const std::string& key, const Tensor& accumulated) const;
  /// Returns the factor of all gradients, if Options::max_grad_norm asks for one. `gradient`
  /// returns the reduced gradient of a weight.
  Tensors scale(const Gradient& gradient) const;
  /// Adds the update of a weight. `scale` is the result of scale().
  void update(const std::string& key, const Tensor& reduced_gradient, const Tensors& scale);

 private:
  Tensor divisor(const std::string& key) const;
  nn::ShardRule rule() const { return {.threshold = options_.locations.min_elements_sharded}; }

  Graph& main_;
  const NetworkGraph& network_;
  const WeightRules& rules_;
  nn::Optimizer& optimizer_;
  const Options& options_;
  Training& training_;
  int device(const std::string& key) const {
    const auto found = devices_.find(key);
    return found == devices_.end() ? kInheritDevice : found->second;
  }

  std::map<std::string, int> devices_;
  nn::NamedRemoteBuffers weights_;  ///< Remote weights and running variables by key.
  mutable nn::GraphCache cache_;    ///< Graphs of the norm.
  StepSizes step_sizes_;
  Tensor divisor_;                          ///< Divisor of gradients; empty without a total weight.
  mutable std::map<int, Tensor> divisors_;  ///< Copies of it, by device.
  nn::internal::PathCounts made_;           ///< Variables of the program by path.
};

/// The accumulators that micro-batches add their gradients to, by WeightUse::name(): on the device,
/// or in remote memory with TensorLocations::accumulators.
class Accumulators {
 public:
  Accumulators(Graph& main, const WeightRules& rules, const Options& options)
      : main_(main), rules_(rules), options_(options) {}

  /// Adds ops to the entry graph that make the accumulator of a use and set it to zero.
  void add(const WeightUse& use);
  /// Takes the gradient of the only micro-batch, a tensor of the entry graph, as the accumulator.
  void keep(const WeightUse& use, const Tensor& gradient);
  bool is_remote(const std::string& use) const { return there_.contains(use); }
  bool any_remote() const { return !there_.empty(); }
  /// The tensor of an accumulator on the device, in the entry graph.
  const Tensor& tensor(const std::string& use) const { return here_.at(use); }
  /// Returns the accumulator in the entry graph; loads it if it is remote.
  Tensor value(const std::string& use) const {
    return is_remote(use) ? load(main_, use) : tensor(use);
  }
  /// Load and store a remote accumulator in any graph.
  Tensor load(Graph& graph, const std::string& use) const;
  void store(Graph& graph, const std::string& use, const Tensor& accumulator) const;

  /// Runs the gradient of block `b` of a micro-batch in `graph`. Remote accumulators are loaded
  /// before it and stored after it, unless `here` has them. It has the tensors of the others in
  /// `graph`.
  void accumulate(Graph& graph, MicroBatch& run, size_t b, const BlockGraph& block,
                  const std::optional<BlockGradient>& gradient, const MicroBatch::Weights& weights,
                  const MicroBatch::ByUse& here, const Tensor& counter) const;

 private:
  void keep_as(const std::string& use, const Tensor& gradient);

  Graph& main_;
  const WeightRules& rules_;
  const Options& options_;
  MicroBatch::ByUse here_;
  std::map<std::string, RemoteBuffer> there_;
};

/// Adds loads of the next entries of all fields and of the seed to a graph.
MicroBatchValues load_micro_batch(Graph& graph, const NetworkGraph& network,
                                  const Training& training);

/// Adds a tensor of zeros to a graph.
Tensor zeros(Graph& graph, const TensorSpec& spec, const std::string& name);

/// Whether a tensor of this spec waits in remote memory.
bool is_off_device(Location location, const TensorSpec& spec, const TensorLocations& locations);

}  // namespace sluice::train
