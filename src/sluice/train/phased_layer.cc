#include "sluice/train/phased_layer.h"

#include "sluice/nn/autodiff.h"
#include "sluice/nn/remote.h"
#include "sluice/ops/updates.h"

namespace sluice::train {
namespace {

nn::NamedTensors gathered(const nn::NamedTensors& tensors) {
  nn::NamedTensors whole;
  tensors.for_each([&](const std::string& key, const Tensor& t) {
    whole.merge(key, nn::gather_replica_sharded_tensor(t));
  });
  return whole;
}

}  // namespace

PhasedLayer::PhasedLayer(nn::NamedVariableFactories factories, nn::GraphWithNamedArgs forward,
                         nn::Optimizer& optimizer, const PhasedLayerOptions& options)
    : PhasedLayer(options) {
  const Tensors wanted = options.input_gradient == InputGradient::kYes
                             ? Tensors{forward.graph().inputs()[0]}
                             : Tensors{};
  auto [grad_facts, backward] =
      nn::autodiff_with_accumulation(forward, forward.args().tensors(), {.grads_required = wanted});
  if (options.activations == Activations::kRecompute) backward = nn::recompute_graph(backward);
  weight_facts_ = std::move(factories);
  grad_facts_ = std::move(grad_facts);
  make_updates(forward.graph().ir(), forward.args(), optimizer);
  forward_ = std::move(forward);
  backward_ = std::move(backward);
}

PhasedLayer PhasedLayer::joint(const nn::NamedVariableFactories& factories,
                               nn::GraphWithNamedArgs graph, nn::Optimizer& optimizer,
                               const PhasedLayerOptions& options) {
  PhasedLayer layer(options);
  layer.weight_facts_ = factories.tree("fwd");
  layer.grad_facts_ = factories.tree("bwd");
  layer.make_updates(graph.graph().ir(), graph.args().tree("fwd"), optimizer);
  layer.backward_ = std::move(graph);
  return layer;
}

void PhasedLayer::make_updates(const Ir& ir, const nn::NamedTensors& weights,
                               nn::Optimizer& optimizer) {
  require(options_.rows >= 1, "phased layer: rows must be at least 1, got {}", options_.rows);
  variables_.resize(static_cast<size_t>(options_.rows));
  weights.for_each([&](const std::string& key, const Tensor& w) {
    const nn::ShardRule rule{.threshold = options_.shard_threshold};
    const TensorSpec spec = nn::replica_sharded_spec(ir, w.spec(), rule);
    const VariableInfo updated{.group = weight_facts_[key].group(),
                               .shard = nn::shard_count(ir, w.spec(), rule)};
    const auto& [facts, graph] = optimizer.step_graph(ir, spec, spec);
    updates_.emplace_back(key, graph);
    facts.for_each([&, k = key](const std::string& name, const nn::VariableFactory& factory) {
      state_facts_.merge(k + "." + name, factory.beside(spec, updated));
    });
  });
  const auto offload = [&](const char* kind, const nn::NamedVariableFactories& facts) {
    if (facts.empty()) return;
    buffers_.insert(kind,
                    nn::named_variable_buffers(ir, facts, options_.rows, options_.shard_threshold));
  };
  if (options_.offload.weights) offload("fwd", weight_facts_);
  if (options_.offload.optimizer) offload("optim", state_facts_);
}

const nn::GraphWithNamedArgs& PhasedLayer::forward() const {
  require(forward_.has_value(), "phased layer: it runs forward and backward in one phase");
  return *forward_;
}

void PhasedLayer::serialise(nn::BatchSerialiseOptions options) {
  require(!backward_phase_.has_value(), "phased layer: its phases are made already");
  options.rows = options_.rows;
  if (forward_) {
    auto [fwd, bwd] =
        nn::batch_serialise_fwd_and_grad(*forward_, *backward_, forward_->args(), options);
    note_ = fwd.note.empty() ? bwd.note : fwd.note;
    forward_phase_ = std::move(fwd);
    backward_phase_ = std::move(bwd);
  } else {
    backward_phase_ = nn::batch_serialise(*backward_, options);
    note_ = backward_phase_->note;
  }
}

const PhasedLayer::Variables& PhasedLayer::init(Graph& main, int64_t row,
                                                const nn::InitOptions& options) {
  nn::internal::PathCounts made(main.ir());
  return init(main, row, options, made);
}

const PhasedLayer::Variables& PhasedLayer::init(Graph& main, int64_t row,
                                                const nn::InitOptions& options,
                                                nn::internal::PathCounts& made) {
  require(row >= 0 && row < rows(), "phased layer: row {} is outside its {} rows", row, rows());
  const auto make = [&](const char* kind, const nn::NamedVariableFactories& facts,
                        const nn::InitOptions& o) {
    return buffers_.contains(kind) ? facts.init_remote(main, buffers_.tree(kind), row, o, made)
                                   : facts.init(main, o, made);
  };
  auto& variables = variables_[static_cast<size_t>(row)];
  variables = Variables{make("fwd", weight_facts_, options),
                        make("optim", state_facts_, {.prefix = options.prefix})};
  return *variables;
}

const PhasedLayer::Variables& PhasedLayer::variables(int64_t row) const {
  require(row >= 0 && row < rows() && variables_[static_cast<size_t>(row)].has_value(),
          "phased layer: row {} of its {} rows has no variables", row, rows());
  return *variables_[static_cast<size_t>(row)];
}

PhasedLayer::Local PhasedLayer::load_forward(Graph& main, int64_t row) const {
  Local local;
  local.weights = load_weights(main, row);
  return local;
}

PhasedLayer::Local PhasedLayer::load_backward(Graph& main, int64_t row) const {
  const Variables& own = variables(row);
  Local local;
  local.loaded = nn::load_remote(main, buffers_, row);
  local.weights = buffers_.contains("fwd") ? gathered(local.loaded.tree("fwd")) : own.weights;
  local.state = buffers_.contains("optim") ? local.loaded.tree("optim") : own.state;
  return local;
}

nn::NamedTensors PhasedLayer::load_weights(Graph& entry, int64_t row) const {
  if (buffers_.contains("fwd")) return gathered(nn::load_remote(entry, buffers_.tree("fwd"), row));
  nn::NamedTensors shared;
  variables(row).weights.for_each([&](const std::string& key, const Tensor& variable) {
    const bool own = variable.graph_id() == entry.id();
    shared.merge(key, own ? variable : entry.ir().share_variable(variable, entry));
  });
  return shared;
}

void PhasedLayer::run_forward(Graph& main, int64_t row, const Local& local) const {
  require(forward_phase_.has_value(), "phased layer: it has no forward phase yet");
  forward_phase_->graph.bind(local.weights).call(&main, row);
}

void PhasedLayer::run_backward(Graph& main, int64_t row, const Local& local,
                               const Tensor& step_size) const {
  require(backward_phase_.has_value(), "phased layer: it has no backward phase yet");
  const nn::NamedTensors grads = grad_facts_.init_zero(main);
  nn::NamedTensors given;
  if (forward_) {
    given = local.weights;
    given.update(grads);
  } else {
    given.insert("fwd", local.weights);
    given.insert("bwd", grads);
  }
  backward_phase_->graph.bind(given).call(&main, row);
  update(main, local, grads.tree("accum"), step_size);
  nn::store_remote(main, buffers_, local.loaded, row);
}

void PhasedLayer::update(Graph& main, const Local& local, const nn::NamedTensors& accumulated,
                         const Tensor& step_size) const {
  const nn::ShardRule rule{.threshold = options_.shard_threshold};
  for (const auto& [key, update] : updates_) {
    const Tensor& whole = local.weights[key];
    const bool offloaded = local.loaded.contains("fwd");
    const bool sliced = !offloaded && nn::shard_count(main.ir(), whole.spec(), rule) > 0;
    const Tensor own = offloaded ? local.loaded["fwd." + key]
                       : sliced  ? ops::replica_sharded_slice(whole)
                                 : whole;
    const Tensor mean = nn::reduce_replica_sharded_tensor(accumulated[key], "mean", rule);
    const bool stateful = local.state.contains(key);
    update.bind(stateful ? local.state.tree(key) : nn::NamedTensors{}).call(own, mean, step_size);
    if (sliced) ops::copy_var_update_(whole, nn::gather_replica_sharded_tensor(own));
  }
}

}  // namespace sluice::train
