#include "sluice/train/strategies/phased_layer.h"

#include <algorithm>

#include "sluice/nn/autodiff.h"
#include "sluice/nn/remote.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/updates.h"
#include "sluice/train/strategies/row_loop.h"

namespace sluice::train {
namespace {

// The row as the i32 tensor that the phase's graph takes.
Tensor index(Graph& graph, const RemoteEntry& row) {
  return row.tensor() != nullptr ? *row.tensor()
                                 : graph.scalar(static_cast<double>(row.constant()), i32, "row");
}

RowLoop::Form form_of(bool remote) {
  return remote ? RowLoop::Form::kLoop : RowLoop::Form::kInLine;
}

}  // namespace

PhasedLayer::PhasedLayer(nn::NamedVariableFactories factories, nn::GraphWithNamedArgs forward,
                         nn::Optimizer& optimizer, const PhasedLayerOptions& options)
    : PhasedLayer(options) {
  const Tensors wanted = options.input_gradient == InputGradient::kYes
                             ? Tensors{forward.graph().inputs()[0]}
                             : Tensors{};
  auto [grad_factories, backward] =
      nn::autodiff_with_accumulation(forward, forward.args().tensors(), {.grads_required = wanted});
  if (options.activations == Activations::kRecompute) backward = nn::recompute_graph(backward);
  weight_factories_ = std::move(factories);
  grad_factories_ = std::move(grad_factories);
  make_updates(forward.graph().ir(), forward.args(), optimizer);
  forward_ = std::move(forward);
  backward_ = std::move(backward);
}

PhasedLayer::PhasedLayer(LayerGraphs graphs, nn::Optimizer& optimizer,
                         const PhasedLayerOptions& options)
    : PhasedLayer(options) {
  weight_factories_ = std::move(graphs.weights);
  grad_factories_ = std::move(graphs.accumulators);
  forward_ = std::move(graphs.forward);
  backward_ = std::move(graphs.backward);
  borrowed_ = std::move(graphs.borrowed);
  lent_ = std::move(graphs.lent);
  tied_ = std::move(graphs.tied);
  SLUICE_CHECK(tied_ != nullptr || (borrowed_.empty() && lent_.empty()));
  const nn::GraphWithNamedArgs& any = forward_ ? *forward_ : *backward_;
  const bool joint_weights = !forward_ && any.args().contains("fwd");
  make_updates(any.graph().ir(),
               forward_        ? any.args()
               : joint_weights ? any.args().tree("fwd")
                               : nn::NamedTensors{},
               optimizer);
}

PhasedLayer PhasedLayer::joint(const nn::NamedVariableFactories& factories,
                               nn::GraphWithNamedArgs graph, nn::Optimizer& optimizer,
                               const PhasedLayerOptions& options) {
  return {{.weights = factories.tree("fwd"),
           .accumulators = factories.tree("bwd"),
           .backward = std::move(graph)},
          optimizer,
          options};
}

void PhasedLayer::make_updates(const Ir& ir, const nn::NamedTensors& weights,
                               nn::Optimizer& optimizer) {
  require(options_.rows >= 1, "phased layer: rows must be at least 1, got {}", options_.rows);
  variables_.resize(static_cast<size_t>(options_.rows));
  weights.for_each([&](const std::string& key, const Tensor& w) {
    if (!grad_factories_.has_leaf("accum." + key) || !weight_factories_.has_leaf(key)) return;
    const nn::ShardRule rule{.threshold = options_.shard_threshold};
    const TensorSpec spec = nn::replica_sharded_spec(ir, w.spec(), rule);
    const VariableInfo updated{.group = weight_factories_[key].group(),
                               .shard = nn::shard_count(ir, w.spec(), rule)};
    const auto& [factories, graph] = optimizer.step_graph(ir, spec, spec);
    updates_.emplace_back(key, graph);
    factories.for_each([&, k = key](const std::string& name, const nn::VariableFactory& factory) {
      state_factories_.merge(k + "." + name, factory.beside(spec, updated));
    });
  });
  const auto offload = [&](const char* kind, const nn::NamedVariableFactories& factories) {
    if (factories.empty()) return;
    buffers_.insert(
        kind, nn::named_variable_buffers(ir, factories, options_.rows, options_.shard_threshold));
  };
  if (options_.offload.weights) offload("fwd", weight_factories_);
  if (options_.offload.optimizer) offload("optim", state_factories_);
}

const nn::GraphWithNamedArgs& PhasedLayer::forward() const {
  require(forward_.has_value(),
          "phased layer: forward() requires a separate forward graph, got a joint layer; use "
          "backward()");
  return *forward_;
}

void PhasedLayer::serialise(nn::BatchSerialiseOptions options) {
  require(!backward_phase_ && !forward_phase_,
          "phased layer: serialise() must be called once, got a second call");
  options.rows = options_.rows;
  io_mode_ = options.io_mode;
  if (!backward_) {
    forward_phase_ = nn::batch_serialise(*forward_, options);
    note_ = forward_phase_->note;
  } else if (forward_) {
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
  return set_variables(row, [&](const char* kind, const nn::NamedVariableFactories& factories) {
    const bool weights = kind == std::string_view("fwd");
    const nn::InitOptions o = weights ? options : nn::InitOptions{.prefix = options.prefix};
    return buffers_.contains(kind) ? factories.init_remote(main, buffers_.tree(kind), row, o, made)
                                   : factories.init(main, o, made);
  });
}

const PhasedLayer::Variables& PhasedLayer::init(Graph& main, int64_t row,
                                                const nn::NamedVariableFactories& factories,
                                                const std::map<std::string, std::string>& paths,
                                                uint64_t seed, nn::internal::PathCounts& made) {
  return set_variables(row, [&](const char* kind, const nn::NamedVariableFactories& own) {
    const bool weights = kind == std::string_view("fwd");
    nn::NamedVariableFactories named;
    nn::NamedRemoteBuffers buffers;
    std::vector<std::pair<std::string, std::string>> keys;  // {key, path}
    for (const auto& [key, path] : paths) {
      if (weights) {
        keys.emplace_back(key, path);
        named.merge(path, factories[path]);
      } else if (own.contains(key)) {
        own.tree(key).for_each([&, k = key, p = path](const std::string& name, const auto& f) {
          keys.emplace_back(k + "." + name, p + "." + name);
          named.merge(p + "." + name, f);
        });
      }
    }
    const nn::InitOptions o{.seed = weights ? seed : 0};
    nn::NamedTensors variables;
    if (buffers_.contains(kind)) {
      for (const auto& [key, path] : keys) buffers.merge(path, buffers_.tree(kind)[key]);
      variables = named.init_remote(main, buffers, row, o, made);
    } else {
      variables = named.init(main, o, made);
    }
    nn::NamedTensors result;
    for (const auto& [key, path] : keys) result.merge(key, variables[path]);
    return result;
  });
}

template <typename Make>
const PhasedLayer::Variables& PhasedLayer::set_variables(int64_t row, const Make& make) {
  require(row >= 0 && row < rows(), "phased layer: row must be in [0, {}), got {}", rows(), row);
  auto& variables = variables_[static_cast<size_t>(row)];
  variables = Variables{make("fwd", weight_factories_), make("optim", state_factories_)};
  return *variables;
}

const PhasedLayer::Variables& PhasedLayer::variables(int64_t row) const {
  require(row >= 0 && row < rows() && variables_[static_cast<size_t>(row)].has_value(),
          "phased layer: row must be in [0, {}) and have variables, got {}; call init() for it",
          rows(), row);
  return *variables_[static_cast<size_t>(row)];
}

bool PhasedLayer::is_remote(std::initializer_list<const char*> kinds) const {
  return std::all_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
    return (kind == "fwd" ? weight_factories_ : state_factories_).empty() ||
           buffers_.contains(kind);
  });
}

nn::NamedTensors PhasedLayer::load(Graph& graph, const RemoteEntry& row,
                                   std::initializer_list<const char*> kinds) const {
  nn::NamedTensors loaded;
  for (const char* kind : kinds) {
    if (buffers_.contains(kind))
      loaded.insert(kind, nn::load_remote(graph, buffers_.tree(kind), row));
  }
  return loaded;
}

nn::NamedTensors PhasedLayer::whole_weights(Graph& graph, const RemoteEntry& row,
                                            const nn::NamedTensors& loaded) const {
  nn::NamedTensors whole;
  for (const LayerGraphs::Tied& w : borrowed_) whole.merge(w.key, tied_->find(graph, w.path));
  if (weight_factories_.empty()) return whole;
  if (loaded.contains("fwd")) {
    loaded.tree("fwd").for_each([&](const std::string& key, const Tensor& t) {
      whole.merge(key, nn::gather_replica_sharded_tensor(t));
    });
    return whole;
  }
  variables(row.constant()).weights.for_each([&](const std::string& key, const Tensor&) {
    whole.merge(key, weight(graph, row.constant(), key));
  });
  return whole;
}

Tensor PhasedLayer::weight(Graph& graph, int64_t row, const std::string& key) const {
  if (buffers_.contains("fwd"))
    return nn::gather_replica_sharded_tensor(
        graph.remote_load(buffers_.tree("fwd")[key], row, key));
  const Tensor& variable = variables(row).weights[key];
  return variable.graph_id() == graph.id() ? variable : graph.ir().share_variable(variable, graph);
}

RowLoop PhasedLayer::forward_loop() const {
  require(forward_phase_.has_value(),
          "phased layer: a forward phase requires serialise() on a layer that is not joint");
  RowLoop loop{.rows = rows(), .form = form_of(is_remote({"fwd"})), .io_mode = io_mode_};
  loop.load = [this](Graph& g, const RemoteEntry& row) { return load(g, row, {"fwd"}); };
  loop.run = [this](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                    const Tensors&, const Tensors&) {
    forward_phase_->graph.bind(whole_weights(g, row, loaded)).call(&g, index(g, row));
    return Tensors{};
  };
  return loop;
}

RowLoop PhasedLayer::backward_loop() const {
  require(backward_phase_.has_value(), "phased layer: a backward phase requires serialise()");
  RowLoop loop{.rows = rows(),
               .order = RowLoop::Order::kDescending,
               .form = form_of(is_remote({"fwd", "optim"})),
               .io_mode = io_mode_};
  loop.load = [this](Graph& g, const RemoteEntry& row) { return load(g, row, {"fwd", "optim"}); };
  loop.reload = [this](Graph& g, const RemoteEntry& row, const nn::NamedTensors& over) {
    over.for_each(
        [&](const std::string& key, const Tensor& t) { g.remote_load_(buffers_[key], row, t); });
  };
  loop.run = [this](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                    const Tensors&, const Tensors& step_size) {
    learn(g, row, loaded, step_size[0]);
    return Tensors{};
  };
  loop.store = [this](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded) {
    nn::store_remote(g, buffers_, loaded, row);
  };
  return loop;
}

void PhasedLayer::forward_phase(Graph& main, int64_t row) const {
  const RowLoop loop = forward_loop();
  loop.run(main, row, loop.load(main, row), {}, {});
}

void PhasedLayer::backward_phase(Graph& main, int64_t row, const Tensor& step_size) const {
  const RowLoop loop = backward_loop();
  const nn::NamedTensors loaded = loop.load(main, row);
  loop.run(main, row, loaded, {}, {step_size});
  loop.store(main, row, loaded);
}

void PhasedLayer::forward_phases(Graph& main) const { run_rows(main, forward_loop(), {}, {}); }

void PhasedLayer::backward_phases(Graph& main, const Tensor& step_size) const {
  run_rows(main, backward_loop(), {}, {step_size});
}

Tensors PhasedLayer::apply(Graph& entry, const nn::GraphWithNamedArgs& graph, const Tensors& values,
                           const Tensors& invariants) const {
  RowLoop loop{.rows = rows(), .form = form_of(is_remote({"fwd"})), .io_mode = io_mode_};
  loop.load = [this](Graph& g, const RemoteEntry& row) { return load(g, row, {"fwd"}); };
  loop.run = [&](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                 const Tensors& before, const Tensors& fixed) {
    return graph.bind(whole_weights(g, row, loaded)).call(&g, before, fixed);
  };
  return run_rows(entry, loop, values, invariants);
}

nn::NamedTensors PhasedLayer::own_gradients(const nn::NamedTensors& accumulated) const {
  nn::NamedTensors own;
  for (const LayerGraphs::Tied& w : borrowed_) {
    const Tensor* gradient = accumulated.find_leaf(w.key);
    if (gradient == nullptr) continue;
    Tensor& sum = tied_->gradients[w.path];
    sum = sum.valid() ? ops::add(sum, *gradient) : *gradient;
  }
  for (const auto& [key, graph] : updates_) own.merge(key, accumulated[key]);
  for (const LayerGraphs::Tied& w : lent_) {
    const auto sum = tied_->gradients.find(w.path);
    if (sum == tied_->gradients.end()) continue;
    const Tensor* last = own.find_leaf(w.key);
    own.insert(w.key, last == nullptr ? sum->second : ops::add(sum->second, *last),
               nn::Overwrite::kYes);
  }
  return own;
}

void PhasedLayer::learn(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& loaded,
                        const Tensor& step_size) const {
  const nn::NamedTensors whole = whole_weights(graph, row, loaded);
  const nn::NamedTensors grads = grad_factories_.init_zero(graph);
  nn::NamedTensors given;
  if (forward_) {
    given = whole;
    given.update(grads);
  } else {
    given.insert("fwd", whole);
    given.insert("bwd", grads);
  }
  backward_phase_->graph.bind(given).call(&graph, index(graph, row));
  const nn::NamedTensors gradients =
      own_gradients(grads.contains("accum") ? grads.tree("accum") : nn::NamedTensors{});
  if (updates_.empty()) return;
  const nn::NamedTensors state = loaded.contains("optim")   ? loaded.tree("optim")
                                 : state_factories_.empty() ? nn::NamedTensors{}
                                                            : variables(row.constant()).state;
  update(graph, whole, loaded, state, gradients, step_size);
}

void PhasedLayer::update(Graph& graph, const nn::NamedTensors& whole,
                         const nn::NamedTensors& loaded, const nn::NamedTensors& state,
                         const nn::NamedTensors& gradients, const Tensor& step_size) const {
  const nn::ShardRule rule{.threshold = options_.shard_threshold};
  for (const auto& [key, update] : updates_) {
    const Tensor& weight = whole[key];
    const bool offloaded = loaded.contains("fwd");
    const bool sliced = !offloaded && nn::shard_count(graph.ir(), weight.spec(), rule) > 0;
    const Tensor own = offloaded ? loaded["fwd." + key]
                       : sliced  ? ops::replica_sharded_slice(weight)
                                 : weight;
    const Tensor mean =
        nn::reduce_replica_sharded_tensor(gradients[key], ops::CollectiveOp::kMean, rule);
    const bool stateful = state.contains(key);
    update.bind(stateful ? state.tree(key) : nn::NamedTensors{}).call(own, mean, step_size);
    if (sliced) ops::copy_var_update_(weight, nn::gather_replica_sharded_tensor(own));
  }
}

}  // namespace sluice::train
