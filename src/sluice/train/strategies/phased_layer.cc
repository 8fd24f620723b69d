#include "sluice/train/strategies/phased_layer.h"

#include <algorithm>

#include "sluice/nn/autodiff.h"
#include "sluice/nn/remote.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
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
  auto [grad_factories, backward] = nn::autodiff_with_accumulation(
      forward, factories.select(forward.args(), nn::Role::kWeight).tensors(),
      {.grads_required = wanted});
  if (options.recompute) backward = nn::recompute_graph(backward);
  set_factories(factories);
  grad_factories_ = std::move(grad_factories);
  make_updates(forward.graph().ir(), forward.args(), optimizer);
  forward_ = std::move(forward);
  backward_ = std::move(backward);
}

PhasedLayer::PhasedLayer(LayerGraphs graphs, nn::Optimizer& optimizer,
                         const PhasedLayerOptions& options)
    : PhasedLayer(options) {
  set_factories(graphs.weights);
  grad_factories_ = std::move(graphs.accumulators);
  forward_ = std::move(graphs.forward);
  backward_ = std::move(graphs.backward);
  borrowed_ = std::move(graphs.borrowed);
  lent_ = std::move(graphs.lent);
  results_ = std::move(graphs.results);
  tied_ = std::move(graphs.tied);
  rules_ = std::move(graphs.rules);
  SLUICE_CHECK(tied_ != nullptr || (borrowed_.empty() && lent_.empty()));
  SLUICE_CHECK(options_.rows == 1 || results_.empty());
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

void PhasedLayer::set_factories(const nn::NamedVariableFactories& factories) {
  factories.for_each([&](const std::string& key, const nn::VariableFactory& factory) {
    const bool running = factory.role() == nn::Role::kRunning;
    (running ? running_factories_ : weight_factories_).merge(key, factory);
  });
}

std::optional<WeightRule> PhasedLayer::rule_of(const std::string& key, DType dtype,
                                               const nn::Optimizer& optimizer) const {
  if (rules_) {
    const auto found = rules_->find(key);
    return found == rules_->end() ? std::nullopt : std::optional(found->second);
  }
  const std::optional<size_t> group = optimizer.group_of(key);
  if (!group) return std::nullopt;
  return WeightRule{.group = *group, .gradient = {.accumulator = dtype}};
}

void PhasedLayer::make_updates(const Ir& ir, const nn::NamedTensors& weights,
                               nn::Optimizer& optimizer) {
  require(options_.rows >= 1, "phased layer: rows must be at least 1, got {}", options_.rows);
  variables_.resize(static_cast<size_t>(options_.rows));
  kept_.resize(variables_.size());
  squares_.resize(variables_.size());
  const nn::ShardRule rule{.threshold = options_.locations.min_elements_sharded};
  nn::NamedVariableFactories gradients;
  std::vector<size_t> groups;
  weights.for_each([&](const std::string& key, const Tensor& w) {
    const auto is_key = [&](const LayerGraphs::Tied& t) { return t.key == key; };
    const bool lent = std::any_of(lent_.begin(), lent_.end(), is_key);
    if (!weight_factories_.has_leaf(key)) return;
    if (!grad_factories_.has_leaf("accum." + key) && !lent) return;
    const std::optional<WeightRule> own = rule_of(key, w.dtype(), optimizer);
    if (!own) return;
    const TensorSpec spec = nn::replica_sharded_spec(ir, w.spec(), rule);
    TensorSpec gradient = spec;
    gradient.dtype = own->gradient.dtype();
    const VariableInfo updated{.group = weight_factories_[key].group(),
                               .shard = nn::shard_count(ir, w.spec(), rule)};
    const auto& [factories, graph] =
        optimizer.step_graph(ir, spec, gradient, options_.grad_scale, updated.group, own->group);
    const auto known = std::find(groups.begin(), groups.end(), own->group);
    const auto argument = static_cast<size_t>(known - groups.begin());
    if (known == groups.end()) groups.push_back(own->group);
    updates_.push_back({key, *own, argument, graph});
    TensorSpec whole = w.spec();
    whole.dtype = gradient.dtype;
    gradients.merge(key, nn::VariableFactory(whole, nn::zeros()));
    factories.for_each([&, k = key](const std::string& name, const nn::VariableFactory& factory) {
      state_factories_.merge(k + "." + name, factory.beside(spec, updated));
    });
  });
  const auto offload = [&](const char* kind, const nn::NamedVariableFactories& factories,
                           int64_t threshold) {
    if (factories.empty()) return;
    buffers_.insert(kind, nn::named_variable_buffers(ir, factories, options_.rows, threshold));
  };
  if (options_.locations.weights == Location::kRemote) {
    offload("fwd", weight_factories_, rule.threshold);
    offload("run", running_factories_, nn::kNeverShard);
  }
  if (options_.locations.optimizer == Location::kRemote)
    offload("optim", state_factories_, rule.threshold);
  if (options_.locations.accumulators == Location::kRemote && options_.updates == Updates::kApart)
    offload("grad", gradients, rule.threshold);
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
  const nn::GraphWithNamedArgs& updates =
      forward_phase_ ? forward_phase_->graph : backward_phase_->graph;
  for (const std::string& key : running_factories_.keys_flat()) {
    const std::string name = forward_ ? key : "fwd." + key;
    const Tensor* const input = updates.args().find_leaf(name);
    if (input != nullptr && updates.graph().info(*input).pass == Pass::kByReference)
      running_.push_back(key);
    if (backward_phase_ && backward_phase_->graph.args().has_leaf(name))
      backward_takes_running_ = true;
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
    const bool weights = kind != std::string_view("optim");
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
    const bool weights = kind != std::string_view("optim");
    nn::NamedVariableFactories named;
    nn::NamedRemoteBuffers buffers;
    std::vector<std::pair<std::string, std::string>> keys;  // {key, path}
    for (const auto& [key, path] : paths) {
      if (weights) {
        if (!own.has_leaf(key)) continue;
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
  make("run", running_factories_).for_each([&](const std::string& key, const Tensor& t) {
    variables->weights.merge(key, t);
  });
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
    const bool none = kind == "fwd"     ? weight_factories_.empty()
                      : kind == "run"   ? running_factories_.empty()
                      : kind == "optim" ? state_factories_.empty()
                                        : updates_.empty();
    return none || buffers_.contains(kind);
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
  const auto add = [&](const char* kind, const nn::NamedVariableFactories& factories) {
    if (loaded.contains(kind)) {
      loaded.tree(kind).for_each([&](const std::string& key, const Tensor& t) {
        whole.merge(key, nn::gather_replica_sharded_tensor(t));
      });
    } else if (!factories.empty() && !buffers_.contains(kind)) {
      for (const std::string& key : variables(row.constant()).weights.keys_flat()) {
        if (factories.has_leaf(key)) whole.merge(key, weight(graph, row.constant(), key));
      }
    }
  };
  add("fwd", weight_factories_);
  add("run", running_factories_);
  return whole;
}

void PhasedLayer::average_running(Graph& graph, const nn::NamedTensors& whole) const {
  if (running_.empty() || graph.ir().fix_replication("a collective") == 1) return;
  for (const std::string& key : running_) {
    const Tensor& t = whole[key];
    ops::copy_var_update_(t, nn::reduce_replica_sharded_tensor(t, ops::CollectiveOp::kMean,
                                                               {.threshold = nn::kNeverShard}));
  }
}

Tensor PhasedLayer::weight(Graph& graph, int64_t row, const std::string& key) const {
  const char* const kind = running_factories_.has_leaf(key) ? "run" : "fwd";
  if (buffers_.contains(kind))
    return nn::gather_replica_sharded_tensor(graph.remote_load(buffers_.tree(kind)[key], row, key));
  const Tensor& variable = variables(row).weights[key];
  return variable.graph_id() == graph.id() ? variable : graph.ir().share_variable(variable, graph);
}

RowLoop PhasedLayer::forward_loop() const {
  require(forward_phase_.has_value(),
          "phased layer: a forward phase requires serialise() on a layer that is not joint");
  RowLoop loop{.rows = rows(), .form = form_of(is_remote({"fwd", "run"})), .io_mode = io_mode_};
  loop.load = [this](Graph& g, const RemoteEntry& row) { return load(g, row, {"fwd", "run"}); };
  loop.run = [this](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                    const Tensors&, const Tensors&) {
    nn::NamedTensors whole = whole_weights(g, row, loaded);
    whole.update(results_);
    forward_phase_->graph.bind(whole).call(&g, index(g, row));
    average_running(g, whole);
    return Tensors{};
  };
  if (!running_.empty()) add_stores(loop, {"run"});
  return loop;
}

RowLoop PhasedLayer::backward_loop() {
  require(backward_phase_.has_value(), "phased layer: a backward phase requires serialise()");
  const bool apart = options_.updates == Updates::kApart;
  RowLoop loop{.rows = rows(),
               .order = RowLoop::Order::kDescending,
               .form = form_of(is_remote({"fwd", apart ? "grad" : "optim"}) &&
                               (!backward_takes_running_ || is_remote({"run"}))),
               .io_mode = io_mode_};
  loop.load = [this, apart](Graph& g, const RemoteEntry& row) {
    nn::NamedTensors loaded = load(g, row, {"fwd"});
    if (!apart) loaded.update(load(g, row, {"optim"}));
    if (backward_takes_running_) loaded.update(load(g, row, {"run"}));
    return loaded;
  };
  const bool updates_running = !forward_ && !running_.empty();
  if (apart) {
    loop.run = [this](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                      const Tensors&, const Tensors& arguments) {
      keep(g, row, gradients(g, row, loaded, arguments));
      return Tensors{};
    };
    if (updates_running) add_stores(loop, {"run"});
    return loop;
  }
  loop.run = [this](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                    const Tensors&, const Tensors& arguments) {
    update(g, row, loaded, gradients(g, row, loaded, arguments), arguments);
    return Tensors{};
  };
  add_stores(loop,
             updates_running ? std::vector{"fwd", "optim", "run"} : std::vector{"fwd", "optim"});
  return loop;
}

RowLoop PhasedLayer::update_loop() const {
  require(options_.updates == Updates::kApart,
          "phased layer: update phases require Updates::kApart");
  RowLoop loop{.rows = rows(),
               .order = RowLoop::Order::kDescending,
               .form = form_of(is_remote({"fwd", "optim", "grad"})),
               .io_mode = io_mode_};
  loop.load = [this](Graph& g, const RemoteEntry& row) {
    return load(g, row, {"fwd", "optim", "grad"});
  };
  loop.run = [this](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                    const Tensors&, const Tensors& arguments) {
    const bool stored = loaded.contains("grad");
    update(g, row, loaded,
           stored ? loaded.tree("grad") : kept_[static_cast<size_t>(row.constant())], arguments);
    return Tensors{};
  };
  add_stores(loop, {"fwd", "optim"});
  return loop;
}

// Stores the variables of these kinds that a row loaded.
void PhasedLayer::add_stores(RowLoop& loop, std::vector<const char*> kinds) const {
  loop.reload = [this](Graph& g, const RemoteEntry& row, const nn::NamedTensors& over) {
    over.for_each(
        [&](const std::string& key, const Tensor& t) { g.remote_load_(buffers_[key], row, t); });
  };
  loop.store = [this, kinds = std::move(kinds)](Graph& g, const RemoteEntry& row,
                                                const nn::NamedTensors& loaded) {
    for (const char* kind : kinds) {
      if (loaded.contains(kind)) nn::store_remote(g, buffers_.tree(kind), loaded.tree(kind), row);
    }
  };
}

Tensors PhasedLayer::arguments_of(const UpdateArguments& arguments) const {
  Tensors result;
  for (const Update& u : updates_) {
    if (u.argument == result.size()) result.push_back(arguments.step_sizes.at(u.rule.group));
  }
  if (options_.grad_scale == nn::GradScale::kInput) result.push_back(arguments.grad_scale);
  return result;
}

void PhasedLayer::forward_phase(Graph& main, int64_t row) const {
  const RowLoop loop = forward_loop();
  const nn::NamedTensors loaded = loop.load(main, row);
  loop.run(main, row, loaded, {}, {});
  if (loop.store) loop.store(main, row, loaded);
}

void PhasedLayer::backward_phase(Graph& main, int64_t row, const Tensor& step_size) {
  const RowLoop loop = backward_loop();
  const nn::NamedTensors loaded = loop.load(main, row);
  loop.run(main, row, loaded, {}, {step_size});
  if (loop.store) loop.store(main, row, loaded);
}

void PhasedLayer::forward_phases(Graph& main) const { run_rows(main, forward_loop(), {}, {}); }

void PhasedLayer::backward_phases(Graph& main, const UpdateArguments& arguments) {
  const bool apart = options_.updates == Updates::kApart;
  Tensors given = apart ? Tensors{} : arguments_of(arguments);
  if (is_weighted()) given.push_back(arguments.total_weight);
  run_rows(main, backward_loop(), {}, given);
}

void PhasedLayer::update_phases(Graph& main, const UpdateArguments& arguments) const {
  run_rows(main, update_loop(), {}, arguments_of(arguments));
}

Tensors PhasedLayer::apply(Graph& entry, const nn::GraphWithNamedArgs& graph, const Tensors& values,
                           const Tensors& invariants) const {
  RowLoop loop{.rows = rows(), .form = form_of(is_remote({"fwd", "run"})), .io_mode = io_mode_};
  loop.load = [this](Graph& g, const RemoteEntry& row) { return load(g, row, {"fwd", "run"}); };
  loop.run = [&](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                 const Tensors& before, const Tensors& fixed) {
    return graph.bind(whole_weights(g, row, loaded)).call(&g, before, fixed);
  };
  return run_rows(entry, loop, values, invariants);
}

bool PhasedLayer::is_weighted() const {
  return std::any_of(updates_.begin(), updates_.end(),
                     [](const Update& u) { return u.rule.gradient.weighted; });
}

nn::NamedTensors PhasedLayer::gradients(Graph& graph, const RemoteEntry& row,
                                        const nn::NamedTensors& loaded, const Tensors& arguments) {
  nn::NamedTensors whole = whole_weights(graph, row, loaded);
  if (!forward_) whole.update(results_);
  const nn::NamedTensors zeros = grad_factories_.init_zero(graph);
  nn::NamedTensors given;
  if (forward_) {
    given = whole;
    given.update(zeros);
  } else {
    given.insert("fwd", whole);
    given.insert("bwd", zeros);
  }
  backward_phase_->graph.bind(given).call(&graph, index(graph, row));
  if (!forward_) average_running(graph, whole);
  // A joint layer may have added to the total weight just before.
  const Tensor divisor = is_weighted() ? total_divisor(arguments.back()) : Tensor();
  return own_gradients(zeros.contains("accum") ? zeros.tree("accum") : nn::NamedTensors{}, whole,
                       divisor);
}

nn::NamedTensors PhasedLayer::own_gradients(const nn::NamedTensors& accumulated,
                                            const nn::NamedTensors& whole,
                                            const Tensor& divisor) const {
  for (const LayerGraphs::Tied& w : borrowed_) {
    const Tensor* gradient = accumulated.find_leaf(w.key);
    if (gradient == nullptr) continue;
    Tensor& sum = tied_->gradients[w.path];
    sum = sum.valid() ? ops::add(sum, *gradient) : *gradient;
  }
  nn::NamedTensors own;
  for (const Update& u : updates_) {
    const Tensor* last = accumulated.find_leaf(u.key);
    Tensor sum;
    for (const LayerGraphs::Tied& w : lent_) {
      if (w.key == u.key) sum = tied_->gradients[w.path];
    }
    if (last != nullptr) sum = sum.valid() ? ops::add(sum, *last) : *last;
    SLUICE_CHECK(sum.valid());
    const auto variable = [&] { return whole[u.key]; };
    own.merge(u.key,
              u.rule.gradient.reduced(
                  sum, variable, {.threshold = options_.locations.min_elements_sharded}, divisor));
  }
  return own;
}

void PhasedLayer::keep(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& gradients) {
  std::map<std::string, Tensors> squares;
  std::vector<TensorArg> all;
  if (options_.grad_scale == nn::GradScale::kInput) {
    for (const Update& u : updates_) {
      squares[u.key] = nn::squares_of_chunks(gradients[u.key], weight_factories_[u.key].group());
      chunks_[u.key] = squares[u.key].size();
      for (const Tensor& t : squares[u.key]) all.emplace_back(t);
    }
  }
  if (gradients.empty()) return;
  if (!buffers_.contains("grad")) {
    const auto r = static_cast<size_t>(row.constant());
    kept_[r] = gradients;
    squares_[r] = std::move(squares);
    return;
  }
  nn::store_remote(graph, buffers_.tree("grad"), gradients, row);
  if (all.empty()) return;
  const Tensor stacked = ops::stack(all);
  if (!square_rows_) square_rows_ = graph.ir().remote_buffer(stacked.spec(), rows());
  graph.remote_store(*square_rows_, row, stacked);
}

std::map<std::string, Tensors> PhasedLayer::squares(Graph& main, int64_t row) const {
  if (!square_rows_) return squares_[static_cast<size_t>(row)];
  const Tensor stacked = main.remote_load(*square_rows_, row, "squares");
  std::map<std::string, Tensors> result;
  int64_t at = 0;
  for (const Update& u : updates_) {
    for (size_t c = 0; c < chunks_.at(u.key); ++c, ++at)
      result[u.key].push_back(ops::reshape(ops::slice(stacked, {at}, {at + 1}), {}));
  }
  return result;
}

void PhasedLayer::update(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& loaded,
                         const nn::NamedTensors& gradients, const Tensors& arguments) const {
  const nn::ShardRule rule{.threshold = options_.locations.min_elements_sharded};
  const bool offloaded = loaded.contains("fwd");
  for (const Update& u : updates_) {
    const Tensor weight =
        offloaded ? loaded["fwd." + u.key] : this->weight(graph, row.constant(), u.key);
    const bool sliced = !offloaded && nn::shard_count(graph.ir(), weight.spec(), rule) > 0;
    const Tensor own = sliced ? ops::replica_sharded_slice(weight) : weight;
    nn::NamedTensors state;
    if (state_factories_.contains(u.key)) {
      state = loaded.contains("optim") ? loaded.tree("optim").tree(u.key)
                                       : variables(row.constant()).state.tree(u.key);
    }
    Tensors scale;
    if (options_.grad_scale == nn::GradScale::kInput) scale.push_back(arguments.back());
    u.graph.bind(state).call(own, gradients[u.key], arguments[u.argument], scale);
    if (sliced) ops::copy_var_update_(weight, nn::gather_replica_sharded_tensor(own));
  }
}

}  // namespace sluice::train
