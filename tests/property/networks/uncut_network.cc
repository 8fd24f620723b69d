#include "uncut_network.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "sluice/base/provenance.h"
#include "sluice/nn/autodiff.h"
#include "sluice/nn/rts.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/updates.h"
#include "sluice/train/cut/cut.h"
#include "sluice/transforms/autodiff.h"

namespace sluice::property {
namespace {

using train::NetworkGraph;
using train::Training;

void add_streams(Ir& ir, const NetworkGraph& network, Training& t) {
  for (const auto& [name, input] : network.fields)
    t.fields.push_back(ir.h2d_stream(input.spec(), name));
  if (!network.seed.empty()) t.seed = ir.h2d_stream(network.seed[0].spec(), "seed");
  for (const train::Loss& l : network.results.losses)
    t.losses.push_back(ir.d2h_stream(l.value.spec(), l.name));
  for (const train::Prediction& p : network.results.predictions)
    t.predictions.push_back(ir.d2h_stream(p.value.spec(), p.name));
}

// Runs one micro-batch and returns its gradients by key.
nn::NamedTensors micro_batch(const NetworkGraph& network, const nn::GraphWithNamedArgs& gradient,
                             Graph& main, const Training& t) {
  TensorMap given;
  for (size_t i = 0; i < network.fields.size(); ++i)
    given.emplace_back(network.fields[i].second, main.host_load(t.fields[i]));
  if (t.seed) given.emplace_back(network.seed[0], main.host_load(*t.seed));
  const CallSiteInfo call = network.graph.bind(t.variables).call_with_info(&main, given);
  for (size_t i = 0; i < t.losses.size(); ++i)
    main.host_store(t.losses[i], call.graph_to_parent(network.results.losses[i].value));
  for (size_t i = 0; i < t.predictions.size(); ++i)
    main.host_store(t.predictions[i], call.graph_to_parent(network.results.predictions[i].value));
  for (const nn::internal::RunningUpdate& u : network.updates) {
    ops::scaled_add_(t.variables[u.key], call.graph_to_parent(u.value), u.rule.keep, u.rule.take);
  }
  Tensors own;
  for (const auto& [value, seed] : network.loss_gradients)
    own.push_back(call.graph_to_parent(seed));
  const auto& info = gradient.grad_graph_info();
  const CallSiteInfo back = gradient.call_with_info(&main, own, info.inputs_dict(call));
  const auto by_variable = info.fwd_parent_ins_to_grad_parent_outs(call, back);
  nn::NamedTensors result;
  network.factories.select(t.variables, nn::Role::kWeight)
      .for_each([&](const std::string& key, const Tensor& variable) {
        result.merge(key, by_variable.at(variable));
      });
  return result;
}

int readers_of(const Graph& graph, const Tensor& t) {
  int count = 0;
  for (const Op& op : graph.ops()) {
    for (const Operand& o : op.inputs) count += o.tensor == t.id();
  }
  return count;
}

}  // namespace

Training uncut_training(Ir ir, const train::Network& network, nn::Optimizer optimizer,
                        const train::Options& options) {
  const NetworkGraph n = network.build(ir, nn::RunMode::kTrain);
  Graph& main = ir.entry_graph("train");
  Training t;
  add_streams(ir, n, t);
  t.variables = n.factories.init(main, {.seed = options.seed});
  Tensors given;
  for (const auto& [value, gradient] : n.loss_gradients) given.push_back(value);
  nn::NamedTensors weights;
  const nn::KeyMatch frozen = nn::keys_like(options.freeze);
  n.factories.select(t.variables, nn::Role::kWeight)
      .for_each([&](const std::string& key, const Tensor& weight) {
        if (!frozen(key)) weights.merge(key, weight);
      });
  const auto gradient = n.graph.autodiff(
      {.grads_provided = given,
       .grads_required = n.factories.select(n.graph.args(), nn::Role::kWeight).tensors()});
  nn::NamedTensors sums;
  for (int64_t m = 0; m < options.accumulate; ++m) {
    micro_batch(n, gradient, main, t).for_each([&](const std::string& key, const Tensor& g) {
      sums.insert(key, m == 0 ? g : ops::add(sums[key], g), nn::Overwrite::kYes);
    });
  }
  nn::NamedTensors means;
  sums.for_each([&](const std::string& key, const Tensor& sum) {
    const bool keep =
        options.accumulate == 1 || options.accumulation_reduction == train::Accumulation::kSum;
    means.merge(key, keep ? sum : ops::mul(sum, 1.0 / static_cast<double>(options.accumulate)));
  });
  for (const nn::internal::RunningUpdate& u : n.updates) {
    const Tensor& running = t.variables[u.key];
    nn::NamedTensors one;
    one.merge("mean", running);
    ops::copy_var_update_(running, nn::mean_over_replicas(one)["mean"]);
  }
  nn::NamedTensors gradients = nn::mean_over_replicas(means);
  if (options.replica_reduction == train::ReplicaReduction::kSum) {
    gradients = {};
    means.for_each([&](const std::string& key, const Tensor& mean) {
      gradients.merge(key, nn::reduce_replica_sharded_tensor(mean, ops::CollectiveOp::kAdd,
                                                             {.threshold = nn::kNeverShard}));
    });
  }
  const double* const rate = std::get_if<double>(&options.learning_rate);
  t.state = optimizer.apply(main, weights, gradients,
                            rate == nullptr ? optimizer.default_learning_rate() : *rate,
                            {.max_grad_norm = options.max_grad_norm});
  t.accumulate = options.accumulate;
  t.replicas = ir.replication();
  return t;
}

std::string rounded_differently(const NetworkGraph& network) {
  const Graph& graph = network.graph.graph();
  std::set<std::string> left;
  std::string last;
  for (const Op& op : graph.ops()) {
    if (op.provenance->block != last && !left.insert(op.provenance->block).second)
      return "block " + op.provenance->block + " is opened again";
    last = op.provenance->block;
  }
  const train::Cut parts = train::cut(network);
  std::map<StorageId, std::set<TensorId>> names;  // Tensors by storage that cross blocks.
  std::map<int32_t, train::BlockId> latest;       // The last block that reads a storage.
  for (const train::BlockId b : parts.blocks.ids()) {
    const train::BlockGraph& block = parts.blocks[b];
    for (const train::WeightUse& w : block.weights) {
      if (w.use + 1 < parts.uses(w.key) && readers_of(block.graph.graph(), w.input) > 1)
        return "a use of " + w.key + " before the last one has several readers";
    }
    for (const train::BlockValue& v : block.outputs)
      names[graph.info(v.whole).storage].insert(v.whole.id());
    for (const train::BlockValue& v : block.inputs) latest[graph.info(v.whole).storage] = b;
  }
  for (const auto& [storage, tensors] : names) {
    if (tensors.size() > 1) return "a value has several handles";
  }
  for (const auto& [t, gradient] : network.loss_gradients) {
    const auto found = latest.find(graph.info(t).storage);
    if (found != latest.end() && !parts.blocks[found->second].output(gradient).valid())
      return "a later block reads " + t.name() + ", which has a gradient of a loss";
  }
  return "";
}

}  // namespace sluice::property
