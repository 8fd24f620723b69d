#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "sluice/nn/rts.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// The graph of Options::gradient_hook for a weight.
struct HookGraph {
  nn::GraphWithNamedArgs graph;  ///< Inputs: the gradient, then the variable if it is read.
  DType dtype = f32;             ///< Dtype of the result.
  std::string structure;         ///< Equal for equal graphs (structure_of()).
};

/// The way of a weight's gradients to its update: reduction over micro-batches, then over replicas,
/// then the hook.
struct GradientRule {
  Accumulation accumulation = Accumulation::kRunningMean;
  int64_t micro_batches = 1;
  DType accumulator = f32;
  ops::CollectiveOp over_replicas = ops::CollectiveOp::kMean;
  bool weighted = false;  ///< Sums are divided by the total weight (Loss::total_weight).
  std::shared_ptr<const HookGraph> hook = nullptr;  ///< Null: without a hook.

  /// Dtype of the gradient that the update reads.
  DType dtype() const { return hook ? hook->dtype : accumulator; }
  /// Adds the reduction of an accumulated gradient over replicas, the division by `divisor` of a
  /// weighted rule (total_divisor()), and the hook. Returns the replica's shard of the gradient if
  /// `shards` cuts it. The hook receives the whole gradient and `variable()`, the whole weight.
  Tensor reduced(const Tensor& accumulated, const std::function<Tensor()>& variable,
                 const nn::ShardRule& shards, const Tensor& divisor) const;
};

/// Adds the sum over replicas of the total weight of a replica's micro-batches. Returns the divisor
/// of the sums of gradients.
Tensor total_divisor(const Tensor& total_weight);

/// The decisions of options and optimizer about a trained weight.
struct WeightRule {
  size_t group = 0;  ///< Parameter group (nn::Optimizer::group_of).
  GradientRule gradient = {};

  /// Equal for weights that may share graphs.
  std::string text() const;
};

/// The rule of each weight that is trained, by key.
using WeightRules = std::map<std::string, WeightRule>;

/// Returns the rules of a network's trained weights. May add graphs of hooks to `ir`. Error{kUsage}
/// for the faults of accumulator dtypes and hooks that Options names, for a pattern of
/// Options::freeze without a weight or patterns that freeze all, for a parameter group that has no
/// weight, and for sums over micro-batches or replicas of losses with a total weight.
WeightRules weight_rules(Ir ir, const NetworkGraph& network, const nn::Optimizer& optimizer,
                         const Options& options);

/// Returns the dtype of an accumulator of a weight or output under the rule `dtype`. Error{kUsage},
/// which begins with `what`, if it is not floating point.
DType dtype_of(const AccumulatorDtype& dtype, const std::string& name, const TensorSpec& spec,
               std::string_view what);

}  // namespace sluice::train
