#include "sluice/train/cut/block_gradients.h"

#include <algorithm>
#include <map>
#include <set>

#include "sluice/nn/autodiff.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/transforms/dependence.h"
#include "sluice/transforms/recompute.h"

namespace sluice::train {
namespace {

using transforms::Value;
using transforms::ValueTable;

Value value_of(const Tensor& t) {
  const Graph& graph = t.graph();
  const StorageId storage = graph.info(t).storage;
  return {storage, graph.storage(storage).version()};
}

class Differentiator {
 public:
  Differentiator(const NetworkGraph& network, const Cut& cut, const WeightRules& rules,
                 WeightGradients weights)
      : network_(network),
        cut_(cut),
        rules_(rules),
        weights_(weights),
        active_(network.graph.graph()) {
    std::vector<Value> required;
    for (const auto& [key, rule] : rules) required.push_back(value_of(network.graph.args()[key]));
    active_ = transforms::Dependence().downstream(network.graph.graph(), required);
  }

  BlockGradients run() {
    BlockGradients result(cut_.blocks.size());
    for (BlockId b(result.size() - 1); b.valid(); b = BlockId(b - 1))
      result[b] = differentiate(cut_.blocks[b]);
    return result;
  }

 private:
  // The gradients of the block's outputs and those of its losses.
  std::vector<TakenGradient> gradients_of(const BlockGraph& block) const {
    std::vector<TakenGradient> taken;
    for (const BlockValue& v : block.outputs) {
      if (later_.contains(v.whole.id())) taken.push_back({.value = v});
    }
    for (const auto& [t, gradient] : network_.loss_gradients) {
      if (!block.output(gradient).valid()) continue;
      const Tensor output = block.output(t);
      const Tensor part = output.valid() ? output : block.input(t);
      require(
          part.valid(),
          "training: the gradient of '{}' must be computed in a block that makes or reads '{}', "
          "got block '{}'",
          t.name(), t.name(), block.name);
      taken.push_back({.value = {t, part}, .loss = gradient});
    }
    return taken;
  }

  std::optional<BlockGradient> differentiate(const BlockGraph& block);
  BlockGradient make_graph(const BlockGraph& block, const Tensors& given, const Tensors& inputs,
                           const std::vector<size_t>& weights) const;

  const NetworkGraph& network_;
  const Cut& cut_;
  const WeightRules& rules_;
  WeightGradients weights_;
  ValueTable<char> active_;   ///< Values of the network that depend on a weight.
  std::set<TensorId> later_;  ///< Values whose gradient a later block computes.
};

BlockGradient Differentiator::make_graph(const BlockGraph& block, const Tensors& given,
                                         const Tensors& inputs,
                                         const std::vector<size_t>& weights) const {
  Tensors parameters;
  for (const size_t i : weights) parameters.push_back(block.weights[i].input);
  if (weights_ == WeightGradients::kReturn || weights.empty()) {
    Tensors required = inputs;
    required.insert(required.end(), parameters.begin(), parameters.end());
    return {.graph = block.graph.autodiff({.grads_provided = given, .grads_required = required}),
            .taken = {}};
  }
  std::vector<std::string> names;
  std::vector<DType> dtypes;
  for (const size_t i : weights) {
    names.push_back(block.weights[i].input.name());
    dtypes.push_back(rules_.at(block.weights[i].key).gradient.accumulator);
  }
  const GradientRule& any = rules_.at(block.weights[weights[0]].key).gradient;
  auto [info, added] = transforms::autodiff_with_accumulation(
      block.graph.graph(), parameters, names,
      {.grads_provided = given,
       .grads_required = inputs,
       .accumulation = any.accumulation,
       .steps = any.micro_batches,
       .counter = weights_ == WeightGradients::kAccumulateShared ? transforms::Counter::kKeep
                                                                 : transforms::Counter::kAdvance,
       .dtypes = std::move(dtypes)});
  Graph& gradient = info.graph();
  BlockGradient result{
      .graph = nn::GraphWithNamedArgs(
          gradient, {}, std::make_shared<const transforms::GradGraphInfo>(std::move(info))),
      .taken = {}};
  const size_t counters = added.size() - weights.size();
  if (counters > 0) result.counter = added[0].input;
  for (size_t i = counters; i < added.size(); ++i) result.accumulators.push_back(added[i].input);
  return result;
}

std::optional<BlockGradient> Differentiator::differentiate(const BlockGraph& block) {
  Graph& g = block.graph.graph();
  std::vector<TakenGradient> taken = gradients_of(block);
  if (taken.empty()) return std::nullopt;
  std::vector<Value> provided;
  for (const TakenGradient& t : taken) provided.push_back(value_of(t.value.part));
  ValueTable<char> useful = transforms::Dependence().upstream(g, provided);
  const auto has_gradient = [&](const Tensor& t) {
    return is_float(t.dtype()) && useful.at(value_of(t)) != 0;
  };
  Tensors wholes;
  std::vector<size_t> positions;
  Tensors inputs;
  std::vector<TakenGradient> later;
  for (const BlockValue& v : block.inputs) {
    if (active_.at(value_of(v.whole)) == 0 || !has_gradient(v.part)) continue;
    inputs.push_back(v.part);
    wholes.push_back(v.whole);
    if (later_.contains(v.whole.id())) later.push_back({.value = v});
  }
  for (size_t i = 0; i < block.weights.size(); ++i) {
    const WeightUse& w = block.weights[i];
    if (!rules_.contains(w.key) || !has_gradient(w.input)) continue;
    positions.push_back(i);
  }
  if (inputs.empty() && positions.empty()) return std::nullopt;
  // The chain of later readers precedes the gradient of a loss of this block.
  taken.insert(taken.begin(), later.begin(), later.end());
  Tensors given;
  for (const TakenGradient& t : taken) given.push_back(t.value.part);

  BlockGradient result = make_graph(block, given, inputs, positions);
  const Tensors graph_inputs = result.graph.graph().inputs();
  for (size_t i = 0; i < taken.size(); ++i) taken[i].input = graph_inputs[i];
  for (const Tensor& t : wholes) later_.insert(t.id());
  result.taken = std::move(taken);
  result.inputs = std::move(wholes);
  result.weights = std::move(positions);
  return result;
}

}  // namespace

BlockGradients differentiate(const NetworkGraph& network, const Cut& cut, const WeightRules& rules,
                             WeightGradients weights) {
  return Differentiator(network, cut, rules, weights).run();
}

void recompute(const Cut& cut, const Recompute& blocks, BlockGradients& gradients) {
  std::vector<std::string> names;
  for (const BlockGraph& block : cut.blocks) names.push_back(block.name);
  for (const std::string& name : blocks.blocks) {
    require(std::find(names.begin(), names.end(), name) != names.end(),
            "recompute: '{}' must be a block of the network, which has {}", name,
            nn::internal::join_keys(names));
  }
  for (const BlockId b : gradients.ids()) {
    const bool chosen = std::find(blocks.blocks.begin(), blocks.blocks.end(), cut.blocks[b].name) !=
                        blocks.blocks.end();
    const bool last = BlockId(b + 1) == gradients.end_id();  // Its gradient follows at once.
    if (!gradients[b] || last || !(blocks.all || chosen)) continue;
    BlockGradient& gradient = *gradients[b];
    transforms::RecomputeResult result =
        transforms::recompute_graph(gradient.graph.grad_graph_info());
    const auto moved = [&](const Tensor& t) {
      for (const auto& [before, after] : result.inputs) {
        if (before == t) return after;
      }
      fail(ErrorKind::kInternal, "recompute: input '{}' has no new input", t.name());
    };
    for (TakenGradient& t : gradient.taken) t.input = moved(t.input);
    if (gradient.counter.valid()) gradient.counter = moved(gradient.counter);
    for (Tensor& t : gradient.accumulators) t = moved(t);
    Graph& graph = result.info.graph();
    gradient.graph = nn::GraphWithNamedArgs(
        graph, {}, std::make_shared<const transforms::GradGraphInfo>(std::move(result.info)));
  }
}

TrainedWeights trained_weights(const WeightRules& rules, const Cut& cut,
                               const BlockGradients& gradients) {
  std::map<std::string, std::vector<const WeightUse*>> uses;
  for (const BlockId b : gradients.ids()) {
    if (!gradients[b]) continue;
    for (const size_t i : gradients[b]->weights)
      uses[cut.blocks[b].weights[i].key].push_back(&cut.blocks[b].weights[i]);
  }
  TrainedWeights result;
  for (const auto& [key, rule] : rules) {
    std::vector<const WeightUse*>& own = uses[key];
    require(
        !own.empty(),
        "training: a loss must depend on each weight, but none depends on '{}'; to freeze a "
        "weight, leave it out of all parameter groups (nn::Optimizer::grouped) instead of using "
        "detach()",
        key);
    std::sort(own.begin(), own.end(),
              [](const WeightUse* a, const WeightUse* b) { return a->use < b->use; });
    result.emplace(key, std::move(own));
  }
  return result;
}

Tensor sum_of_uses(const TrainedWeights& weights, const std::string& key,
                   const std::function<Tensor(const std::string& use)>& gradient) {
  Tensor sum;
  const auto found = weights.find(key);
  if (found == weights.end()) return sum;
  const std::vector<const WeightUse*>& uses = found->second;
  for (size_t u = uses.size(); u-- > 0;) {
    const Tensor next = gradient(uses[u]->name());
    sum = sum.valid() ? ops::add(sum, next) : next;
  }
  return sum;
}

nn::NamedTensors sums_of_uses(const TrainedWeights& weights,
                              const std::function<Tensor(const std::string& use)>& gradient) {
  nn::NamedTensors sums;
  for (const auto& [key, uses] : weights) sums.merge(key, sum_of_uses(weights, key, gradient));
  return sums;
}

}  // namespace sluice::train
