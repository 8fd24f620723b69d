#include "sluice/train/strategies/step_variables.h"

#include <algorithm>

#include "sluice/ir/builtin.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/updates.h"

namespace sluice::train {

bool is_off_device(Location location, const TensorSpec& spec, const TensorLocations& locations) {
  return location == Location::kRemote &&
         spec.shape.elements() >= locations.min_elements_off_device;
}

MicroBatchValues load_micro_batch(Graph& graph, const NetworkGraph& network,
                                  const Training& training) {
  MicroBatchValues values;
  const auto load = [&](const Tensor& whole, const H2dStream& stream) {
    values.forward.emplace(MicroBatch::value(whole), graph.host_load(stream));
  };
  for (size_t i = 0; i < network.fields.size(); ++i)
    load(network.fields[i].second, training.fields[i]);
  for (const Tensor& t : network.seed) load(t, *training.seed);
  return values;
}

Tensor zeros(Graph& graph, const TensorSpec& spec, const std::string& name) {
  const builtin::InitOptions init{.shape = spec.shape, .dtype = spec.dtype};
  return graph.emit(builtin::init(), {}, to_attrs(init), {.name = name, .outputs = {spec}})[0];
}

void Accumulators::add(const WeightUse& use) {
  TensorSpec spec = use.input.spec();
  spec.dtype = rules_.at(use.key).gradient.accumulator;
  keep_as(use.name(), zeros(main_, spec, "accum." + use.name()));
}

void Accumulators::keep(const WeightUse& use, const Tensor& gradient) {
  keep_as(use.name(), ops::cast(gradient, rules_.at(use.key).gradient.accumulator));
}

void Accumulators::keep_as(const std::string& use, const Tensor& gradient) {
  if (!is_off_device(options_.locations.accumulators, gradient.spec(), options_.locations)) {
    here_.emplace(use, gradient);
    return;
  }
  const RemoteBuffer buffer = main_.ir().remote_buffer(gradient.spec());
  const Graph::IoScope scope(main_, options_.io_mode);
  main_.remote_store(buffer, 0, gradient);
  there_.emplace(use, buffer);
}

Tensor Accumulators::load(Graph& graph, const std::string& use) const {
  const Graph::IoScope scope(graph, options_.io_mode);
  return graph.remote_load(there_.at(use), 0, "accum." + use);
}

void Accumulators::store(Graph& graph, const std::string& use, const Tensor& accumulator) const {
  const Graph::IoScope scope(graph, options_.io_mode);
  graph.remote_store(there_.at(use), 0, accumulator);
}

void Accumulators::accumulate(Graph& graph, MicroBatch& run, size_t b, const BlockGraph& block,
                              const std::optional<BlockGradient>& gradient,
                              const MicroBatch::Weights& weights, const MicroBatch::ByUse& here,
                              const Tensor& counter) const {
  MicroBatch::ByUse accumulators = here;
  MicroBatch::ByUse loaded;
  if (gradient) {
    for (const size_t w : gradient->weights) {
      const std::string use = block.weights[w].name();
      if (is_remote(use) && !here.contains(use)) loaded.emplace(use, load(graph, use));
    }
  }
  accumulators.insert(loaded.begin(), loaded.end());
  run.backward(b, weights, accumulators, counter);
  for (const auto& [use, t] : loaded) store(graph, use, t);
}

const Tensor& StepSizes::load() { return rate_ = main_.host_load(*training_.learning_rate); }

const Tensor& StepSizes::of(size_t group) {
  if (training_.learning_rate && !rate_.valid()) load();
  Tensor& size = sizes_[group];
  if (size.valid()) return size;
  return size = rate_.valid() ? optimizer_.step_size(main_, rate_, group)
                              : optimizer_.step_size(main_, training_.constant_rate, group);
}

StepVariables::StepVariables(Graph& main, const NetworkGraph& network, const WeightRules& rules,
                             nn::Optimizer& optimizer, const Options& options, Training& training)
    : main_(main),
      network_(network),
      rules_(rules),
      optimizer_(optimizer),
      options_(options),
      training_(training),
      step_sizes_(main, optimizer, training),
      made_(main.ir()) {
  nn::NamedVariableFactories remote;
  nn::NamedVariableFactories running;  // Whole: replicas update them apart.
  network.factories.for_each([&](const std::string& key, const nn::VariableFactory& factory) {
    if (is_off_device(options.locations.weights, factory.spec(), options.locations))
      (factory.role() == nn::Role::kRunning ? running : remote).merge(key, factory);
  });
  weights_ = nn::named_variable_buffers(main.ir(), remote, 1, rule().threshold);
  nn::named_variable_buffers(main.ir(), running)
      .for_each([&](const std::string& key, const RemoteBuffer& b) { weights_.merge(key, b); });
  const nn::InitOptions init{.seed = options.seed};
  const auto [keys, factories] = network.factories.unpack();
  for (size_t i = 0; i < keys.size(); ++i) {
    nn::NamedVariableFactories one;
    one.merge(keys[i], factories[i]);
    const nn::NamedTensors variable = weights_.has_leaf(keys[i])
                                          ? one.init_remote(main, weights_, 0, init, made_)
                                          : one.init(main, init, made_);
    training.variables.merge(keys[i], variable[keys[i]]);
  }
}

StepVariables::StepVariables(Graph& main, const StepVariables& trained)
    : main_(main),
      network_(trained.network_),
      rules_(trained.rules_),
      optimizer_(trained.optimizer_),
      options_(trained.options_),
      training_(trained.training_),
      devices_(trained.devices_),
      weights_(trained.weights_),
      step_sizes_(main, trained.optimizer_, trained.training_),
      made_(main.ir()) {}

Tensor StepVariables::weight(Graph& graph, const std::string& key) const {
  if (const RemoteBuffer* buffer = weights_.find_leaf(key)) {
    const Graph::IoScope scope(graph, options_.io_mode);
    return nn::gather_replica_sharded_tensor(graph.remote_load(*buffer, 0, key));
  }
  const Tensor& variable = training_.variables[key];
  return variable.graph_id() == graph.id() ? variable : graph.ir().share_variable(variable, graph);
}

MicroBatch::Weights StepVariables::visit(Graph& graph, const nn::NamedTensors& here) const {
  auto loaded = std::make_shared<std::map<std::string, Tensor>>();
  return [this, &graph, &here, loaded](const std::string& key) {
    if (const Tensor* own = here.find_leaf(key)) return *own;
    Tensor& t = (*loaded)[key];
    if (!t.valid()) t = weight(graph, key);
    return t;
  };
}

void StepVariables::update_running(Graph& graph, const BlockGraph& block,
                                   std::span<const MicroBatch> runs,
                                   const nn::NamedTensors& here) const {
  const Graph::IoScope scope(graph, options_.io_mode);
  for (const RunningUse& u : block.updates) {
    const Tensor* const own = here.find_leaf(u.key);
    const Tensor variable = own != nullptr ? *own : weight(graph, u.key);
    for (const MicroBatch& run : runs)
      ops::scaled_add_(variable, run[u.value.whole], u.rule.keep, u.rule.take);
    if (own == nullptr) store_running(graph, u.key, variable);
  }
}

void StepVariables::store_running(Graph& graph, const std::string& key,
                                  const Tensor& variable) const {
  const Graph::IoScope scope(graph, options_.io_mode);
  graph.remote_store(weights_[key], 0, variable);
}

void StepVariables::average_running() const {
  if (network_.updates.empty() || main_.ir().fix_replication("a collective") == 1) return;
  const Graph::IoScope scope(main_, options_.io_mode);
  for (const nn::internal::RunningUpdate& u : network_.updates) {
    const DeviceScope on(main_, device(u.key));
    const Tensor variable = weight(main_, u.key);
    ops::copy_var_update_(variable,
                          nn::reduce_replica_sharded_tensor(variable, ops::CollectiveOp::kMean,
                                                            {.threshold = nn::kNeverShard}));
    if (is_remote(u.key)) main_.remote_store(weights_[u.key], 0, variable);
  }
}

Tensor StepVariables::reduced(const std::string& key, const Tensor& accumulated) const {
  const auto variable = [&] { return weight(main_, key); };
  return rules_.at(key).gradient.reduced(accumulated, variable, rule(), divisor(key));
}

// Each device receives the divisor once.
Tensor StepVariables::divisor(const std::string& key) const {
  if (!divisor_.valid()) return {};
  Tensor& here = divisors_[device(key)];
  const DeviceScope on(main_, device(key));
  if (!here.valid()) here = ops::identity(divisor_, "divisor");
  return here;
}

Tensors StepVariables::scale(const Gradient& gradient) const {
  if (!options_.max_grad_norm) return {};
  std::vector<Tensors> squares;
  for (const auto& [key, rule] : rules_) {
    const DeviceScope on(main_, device(key));
    const auto& replicas = main_.info(training_.variables[key]).variable->group;
    squares.push_back(nn::squares_of_chunks(gradient(key), cache_, replicas));
  }
  return {nn::clip_factor(nn::norm_of_chunks(squares), *options_.max_grad_norm)};
}

void StepVariables::update(const std::string& key, const Tensor& gradient, const Tensors& scale) {
  const Tensor& variable = training_.variables[key];
  const size_t group = rules_.at(key).group;
  const Tensor& step_size = step_sizes_.of(group);
  const DeviceScope on(main_, device(key));
  VariableInfo info = *main_.info(variable).variable;
  const bool shard = !gradient.meta_shape().empty() && variable.meta_shape().empty();
  if (shard) info.shard = nn::shard_count(main_.ir(), variable.spec(), {0, info.group});
  TensorSpec spec = gradient.spec();
  spec.dtype = variable.dtype();
  const auto scaled = scale.empty() ? nn::GradScale::kNone : nn::GradScale::kInput;
  const auto& [factories, step] =
      optimizer_.step_graph(main_.ir(), spec, gradient.spec(), scaled, info.group, group);
  nn::NamedVariableFactories there;
  nn::NamedVariableFactories here;
  factories.for_each([&](const std::string& name, const nn::VariableFactory& factory) {
    const nn::VariableFactory own = factory.beside(spec, info);
    const bool off = is_off_device(options_.locations.optimizer, own.spec(), options_.locations);
    (off ? there : here).merge(name, own);
  });
  const nn::InitOptions place{.prefix = info.path};
  const nn::NamedRemoteBuffers buffers = nn::named_variable_buffers(main_.ir(), there);
  nn::NamedTensors state = here.init(main_, place, made_);
  nn::NamedTensors remote = there.init_remote(main_, buffers, 0, place, made_);
  for (const nn::NamedTensors* tree : {&state, &remote}) {
    tree->for_each([&](const std::string& name, const Tensor& t) {
      training_.state.merge(key + "." + name, t);
    });
  }
  nn::NamedTensors loaded;
  Tensor own;
  {
    const Graph::IoScope scope(main_, options_.io_mode);
    loaded = nn::load_remote(main_, buffers);
    if (is_remote(key)) own = main_.remote_load(weights_[key], 0, key);
  }
  if (!own.valid()) own = shard ? ops::replica_sharded_slice(variable, info.group) : variable;
  state.update(loaded);
  step.bind(state).call(own, gradient, step_size, scale, optimizer_.hypers(group));
  const Graph::IoScope scope(main_, options_.io_mode);
  nn::store_remote(main_, buffers, loaded);
  if (is_remote(key)) {
    main_.remote_store(weights_[key], 0, own);
  } else if (shard) {
    ops::copy_var_update_(variable, nn::gather_replica_sharded_tensor(own, info.group));
  }
}

}  // namespace sluice::train
