#pragma once
#include <map>
#include <optional>
#include <string>

#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/strategies/micro_batch.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

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
  void accumulate(Graph& graph, MicroBatch& run, BlockId b, const BlockGraph& block,
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

}  // namespace sluice::train
