#include "sluice/train/cut/gradient_rule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "sluice/ir/call.h"
#include "sluice/ir/graph_editor.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/cast.h"
#include "sluice/train/cut/block_groups.h"

namespace sluice::train {
namespace {

bool reads(const Graph& graph, const Tensor& t) {
  return std::any_of(graph.ops().begin(), graph.ops().end(), [&](const Op& op) {
    return std::any_of(op.inputs.begin(), op.inputs.end(),
                       [&](const Operand& o) { return o.tensor == t.id(); });
  });
}

// Builds the hook of a weight. Returns null if it returns the gradient itself.
std::shared_ptr<const HookGraph> build_hook(Ir ir, const GradientHook& hook, const std::string& key,
                                            const TensorSpec& weight, DType accumulator) {
  Graph& g = ir.create_empty_graph("gradient_hook");
  const Tensor gradient = g.input({weight.shape, accumulator, {}}, "gradient");
  const Tensor variable = g.input(weight, key);
  const Tensor made = hook(gradient, variable);
  require(made.valid() && g.owns(made),
          "gradient_hook: the result for '{}' must be a tensor of the gradient's graph, got {}; "
          "build it from the two arguments",
          key,
          made.valid() ? fmt::format("'{}' of another graph", made.name()) : "an empty handle");
  require(made.shape() == weight.shape && is_float(made.dtype()),
          "gradient_hook: the result for '{}' must be floating point and have the shape of the "
          "variable, {}, got {}; reduce or cast it to that",
          key, to_string(weight.shape), to_string(made.spec()));
  if (made == gradient && g.ops().empty()) return nullptr;
  g.set_outputs({made == gradient || made == variable ? ops::identity(made) : made});
  if (!reads(g, variable)) GraphEditor(g).set_inputs({gradient});
  return std::make_shared<const HookGraph>(
      HookGraph{nn::GraphWithNamedArgs(g, {}), made.dtype(), structure_of(g)});
}

// Returns a match of the weights that `patterns` freeze. Error{kUsage} for a pattern without a
// weight, and if all of `trained` are frozen.
nn::KeyMatch frozen_weights(const std::vector<std::string>& patterns,
                            const std::vector<std::string>& keys,
                            const std::vector<std::string>& trained) {
  for (const std::string& pattern : patterns) {
    require(std::any_of(keys.begin(), keys.end(), nn::keys_like({pattern})),
            "freeze: '{}' must match the path of a weight, got none; weights are {}", pattern,
            fmt::join(keys, ", "));
  }
  nn::KeyMatch frozen = nn::keys_like(patterns);
  require(patterns.empty() || !std::all_of(trained.begin(), trained.end(), frozen),
          "freeze: must leave a weight that the optimizer trains, got {}, which match all of {}",
          fmt::join(patterns, ", "), fmt::join(trained, ", "));
  return frozen;
}

// Divides in float32.
Tensor divided(const Tensor& sum, const Tensor& divisor) {
  return ops::cast(ops::div(ops::cast(sum, f32), divisor), sum.dtype());
}

}  // namespace

Tensor total_divisor(const Tensor& total_weight) {
  return divisor_of(nn::reduce_replica_sharded_tensor(total_weight, ops::CollectiveOp::kAdd,
                                                      {.threshold = nn::kNeverShard}));
}

Tensor GradientRule::reduced(const Tensor& accumulated, const std::function<Tensor()>& variable,
                             const nn::ShardRule& shards, const Tensor& divisor) const {
  SLUICE_CHECK(weighted == divisor.valid());
  const auto reduce = [&](const nn::ShardRule& rule) {
    const Tensor sum = nn::reduce_replica_sharded_tensor(accumulated, over_replicas, rule);
    return weighted ? divided(sum, divisor) : sum;
  };
  if (!hook) return reduce(shards);
  const nn::ShardRule whole{.threshold = nn::kNeverShard, .group = shards.group};
  const Tensor gradient = reduce(whole);
  Graph& graph = gradient.graph();
  const Tensors inputs = hook->graph.graph().inputs();
  TensorMap given{{inputs[0], gradient}};
  if (inputs.size() > 1) given.emplace_back(inputs[1], variable());
  const Tensor result = hook->graph.call(&graph, given)[0];
  const bool sharded = nn::shard_count(graph.ir(), result.spec(), shards) > 0;
  return sharded ? ops::replica_sharded_slice(result, shards.group) : result;
}

std::string WeightRule::text() const {
  return fmt::format("group {}, {} accumulator, hook {}\n", group, name_of(gradient.accumulator),
                     gradient.hook ? gradient.hook->structure : "none");
}

DType dtype_of(const AccumulatorDtype& dtype, const std::string& name, const TensorSpec& spec,
               std::string_view what) {
  DType result = spec.dtype;
  if (const DType* one = std::get_if<DType>(&dtype)) result = *one;
  if (const auto* function = std::get_if<AccumulatorDtypeFunction>(&dtype)) {
    require(*function != nullptr, "{}: must be a function that can be called, got an empty one",
            what);
    result = (*function)(name, spec);
  }
  require(result == f32 || result == f16 || result == bf16,
          "{}: must be f32, f16 or bf16 for '{}', got {}", what, name, name_of(result));
  return result;
}

WeightRules weight_rules(Ir ir, const NetworkGraph& network, const nn::Optimizer& optimizer,
                         const Options& options) {
  WeightRules rules;
  std::vector<std::shared_ptr<const HookGraph>> hooks;
  const bool weighted = network.total_weight.valid();
  require(!weighted || (options.accumulation_reduction != Accumulation::kSum &&
                        options.replica_reduction != ReplicaReduction::kSum),
          "training: the reductions over micro-batches and replicas must be means for a loss with "
          "a total_weight, got a sum; use means, or leave total_weight out");
  const nn::NamedTensors weights =
      network.factories.select(network.graph.args(), nn::Role::kWeight);
  const std::vector<std::string> keys = weights.keys_flat();
  optimizer.check_groups(keys);
  std::vector<std::string> trained;
  for (const std::string& key : keys) {
    if (optimizer.group_of(key)) trained.push_back(key);
  }
  std::erase_if(trained, frozen_weights(options.freeze, keys, trained));
  for (const std::string& key : trained) {
    const auto group = optimizer.group_of(key);
    const TensorSpec& spec = weights[key].spec();
    WeightRule rule{
        .group = *group,
        .gradient = {
            .accumulation = weighted ? Accumulation::kSum : options.accumulation_reduction,
            .micro_batches = options.accumulate,
            .accumulator = dtype_of(options.accumulator_dtype, key, spec, "accumulator_dtype")}};
    rule.gradient.weighted = weighted;
    if (weighted || options.replica_reduction == ReplicaReduction::kSum)
      rule.gradient.over_replicas = ops::CollectiveOp::kAdd;
    if (options.gradient_hook) {
      auto made = build_hook(ir, options.gradient_hook, key, spec, rule.gradient.accumulator);
      // Equal hooks share one graph, so that the program does not grow with the weights.
      const auto known = std::find_if(hooks.begin(), hooks.end(), [&](const auto& other) {
        return made != nullptr && other->structure == made->structure;
      });
      if (known != hooks.end()) made = *known;
      if (made != nullptr && known == hooks.end()) hooks.push_back(made);
      rule.gradient.hook = std::move(made);
    }
    rules.emplace(key, std::move(rule));
  }
  return rules;
}

}  // namespace sluice::train
