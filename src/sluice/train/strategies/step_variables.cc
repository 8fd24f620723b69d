#include "sluice/train/strategies/step_variables.h"

#include <algorithm>

#include "sluice/ir/builtin.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/updates.h"

namespace sluice::train {

bool is_off_device(Location location, const TensorSpec& spec, const TensorLocations& locations) {
  return location == Location::kRemote &&
         spec.shape.elements() >= locations.min_elements_off_device;
}

Tensors load_inputs(Graph& main, const NetworkGraph& network, const Training& training,
                    StepSizes& step_sizes) {
  Tensors loaded;
  auto next = training.inputs.begin();
  for (const auto& [name, whole] : network.inputs) {
    const bool is_rate = training.learning_rate && training.learning_rate->name == name;
    loaded.push_back(is_rate ? step_sizes.load() : main.host_load(*next++));
  }
  return loaded;
}

Tensor zeros(Graph& graph, const TensorSpec& spec, const std::string& name) {
  const builtin::InitOptions init{.shape = spec.shape, .dtype = spec.dtype};
  return graph.emit(builtin::init(), {}, to_attrs(init), {.name = name, .outputs = {spec}})[0];
}

const Tensor& StepSizes::load() { return rate_ = main_.host_load(*training_.learning_rate); }

const Tensor& StepSizes::of(size_t group) {
  const Graph::ProvenanceScope scope(main_, {.role = OpRole::kUpdate});
  if (training_.learning_rate && !rate_.valid()) load();
  Tensor& size = sizes_[group];
  if (size.valid()) return size;
  return size = rate_.valid() ? optimizer_.step_size(main_, rate_, group)
                              : optimizer_.step_size(main_, training_.constant_rate, group);
}

const Tensors& StepSizes::hypers(size_t group) {
  if (const auto made = hypers_.find(group); made != hypers_.end()) return made->second;
  const Graph::ProvenanceScope scope(main_, {.role = OpRole::kUpdate});
  Tensors streamed;
  for (const CoefficientStream& c : training_.coefficients) {
    if (c.coefficient.group == group) streamed.push_back(main_.host_load(c.stream));
  }
  return hypers_[group] = optimizer_.hypers(group, streamed);
}

StepVariables::StepVariables(Graph& main, const NetworkGraph& network, const WeightRules& rules,
                             nn::Optimizer& optimizer, const Options& options, Training& training,
                             const std::vector<VariableRows>& rows)
    : main_(main),
      network_(network),
      rules_(rules),
      optimizer_(optimizer),
      options_(options),
      training_(training),
      watch_(options, training),
      step_sizes_(main, optimizer, training),
      made_(main.ir()) {
  const auto add = [&](const VariableRows& own) {
    const auto variable = std::make_shared<Variable>(Variable{own});
    for (const RowId r : own.keys.ids())
      variable_rows_.emplace(own.keys[r], VariableRow{variable, r});
  };
  for (const VariableRows& own : rows) add(own);
  const auto [keys, factories] = network.factories.unpack();
  for (const std::string& key : keys) {
    if (!variable_rows_.contains(key)) add({.keys = {key}});
  }
  for (const nn::Role role : {nn::Role::kWeight, nn::Role::kRunning}) {
    network.factories.for_each([&](const std::string& key, const nn::VariableFactory& factory) {
      Variable& own = variable(key);
      if (factory.role() != role || own.buffer ||
          !is_off_device(options.locations.weights, factory.spec(), options.locations))
        return;
      // Replicas update running variables apart, so these are whole.
      const int64_t shards = role == nn::Role::kWeight ? rule().threshold : nn::kNeverShard;
      nn::NamedVariableFactories one;
      one.merge(key, factory);
      own.buffer = nn::named_variable_buffers(main.ir(), one, own.rows.keys.end_id(), shards)[key];
    });
  }
  const nn::InitOptions init{.seed = options.seed};
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto& [own, row] = variable_rows_.at(keys[i]);
    nn::NamedVariableFactories one;
    one.merge(keys[i], factories[i]);
    nn::NamedRemoteBuffers buffer;
    if (own->buffer) buffer.merge(keys[i], *own->buffer);
    const nn::NamedTensors made =
        own->buffer ? one.init_remote(main, buffer, row, init, made_) : one.init(main, init, made_);
    training.variables.merge(keys[i], made[keys[i]]);
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
      variable_rows_(trained.variable_rows_),
      reads_averages_(options_.ema_decay.has_value()),
      watch_(options_, training_),
      step_sizes_(main, trained.optimizer_, trained.training_),
      made_(main.ir()) {
  std::map<const Variable*, std::shared_ptr<Variable>> averages;
  for (auto& [key, row] : variable_rows_) {
    if (!reads_averages_ || !row.variable->update) continue;
    std::shared_ptr<Variable>& average = averages[row.variable.get()];
    if (average == nullptr)
      average = std::make_shared<Variable>(
          Variable{row.variable->rows, row.variable->update->average_there});
    row.variable = average;
  }
}

// A key of another network is not remote.
bool StepVariables::is_remote(const std::string& key) const {
  const auto found = variable_rows_.find(key);
  return found != variable_rows_.end() && found->second.variable->buffer.has_value();
}

bool StepVariables::are_rows(const std::vector<std::string>& keys) const {
  const auto found = variable_rows_.find(keys[0]);
  return found != variable_rows_.end() && found->second.variable->rows.keys.items() == keys;
}

Tensor StepVariables::load(Graph& graph, const std::string& key) const {
  const Graph::IoScope scope(graph, options_.io_mode);
  const Graph::ProvenanceScope of(graph, {.variable = key});
  const auto& [own, row] = variable_rows_.at(key);
  return graph.remote_load(*own->buffer, row.value(),
                           own->rows.name.empty() ? key : own->rows.name);
}

Tensor StepVariables::load(const std::string& key) const {
  return is_remote(key) ? load(main_, key) : Tensor();
}

void StepVariables::store(Graph& graph, const std::string& key, const Tensor& t) const {
  const Graph::IoScope scope(graph, options_.io_mode);
  const Graph::ProvenanceScope of(graph, {.variable = key});
  const auto& [own, row] = variable_rows_.at(key);
  graph.remote_store(*own->buffer, row.value(), t);
}

Tensor StepVariables::weight(Graph& graph, const std::string& key) const {
  const Graph::ProvenanceScope of(graph, {.variable = key});
  if (is_remote(key)) return nn::gather_replica_sharded_tensor(load(graph, key));
  if (const Tensor* const average = reads_averages_ ? training_.averages.find_leaf(key) : nullptr) {
    const DeviceScope on(graph, device(key));
    return nn::gather_replica_sharded_tensor(graph.ir().share_variable(*average, graph),
                                             average->graph().info(*average).variable->group);
  }
  const Tensor* const variable = training_.variables.find_leaf(key);
  require(variable != nullptr,
          "evaluation: weight '{}' must be trained, but the training network has no such weight",
          key);
  return variable->graph_id() == graph.id() ? *variable
                                            : graph.ir().share_variable(*variable, graph);
}

MicroBatch::Weights StepVariables::load_weights(Graph& graph, const nn::NamedTensors& here) const {
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
    const Graph::ProvenanceScope of(
        graph, {.role = OpRole::kRunningAverage, .block = block.name, .variable = u.key});
    const Tensor* const own = here.find_leaf(u.key);
    const Tensor variable = own != nullptr ? *own : weight(graph, u.key);
    for (const MicroBatch& run : runs)
      ops::scaled_add_(variable, run[u.value.whole], u.rule.keep, u.rule.take);
    if (own == nullptr) store(graph, u.key, variable);
  }
}

void StepVariables::average(const Tensor& whole) {
  if (whole.graph().ir().fix_replication("a collective") == 1) return;
  ops::copy_var_update_(whole, nn::reduce_replica_sharded_tensor(whole, ops::CollectiveOp::kMean,
                                                                 {.threshold = nn::kNeverShard}));
}

void StepVariables::average_running() const {
  if (network_.updates.empty() || main_.ir().fix_replication("a collective") == 1) return;
  const Graph::IoScope scope(main_, options_.io_mode);
  for (const nn::internal::RunningUpdate& u : network_.updates) {
    const DeviceScope on(main_, device(u.key));
    const Graph::ProvenanceScope of(main_, {.role = OpRole::kRunningAverage, .variable = u.key});
    const Tensor variable = weight(main_, u.key);
    average(variable);
    if (is_remote(u.key)) store(main_, u.key, variable);
  }
}

Tensor StepVariables::reduced(const std::string& key, const Tensor& accumulated) const {
  const auto variable = [&] { return weight(main_, key); };
  const Graph::ProvenanceScope of(main_, {.role = OpRole::kReduction, .variable = key});
  const GradientRule& by = rules_.at(key).gradient;
  return watch_.store(key, by.reduced(accumulated, variable, rule(), divisor(key)));
}

Tensor StepVariables::reduced(const std::string& key, const Tensor& accumulated,
                              const Tensor& weight, const Tensor& divisor) const {
  const Graph::ProvenanceScope of(accumulated.graph(),
                                  {.role = OpRole::kReduction, .variable = key});
  const auto whole = [&] { return weight; };
  return watch_.store_row(variable(key).rows.keys.items(),
                          rules_.at(key).gradient.reduced(accumulated, whole, rule(), divisor));
}

// Each device receives the divisor once.
Tensor StepVariables::divisor(const std::string& key) const {
  if (!divisor_.valid()) return {};
  Tensor& here = divisors_[device(key)];
  const DeviceScope on(main_, device(key));
  if (!here.valid()) here = ops::identity(divisor_, "divisor");
  return here;
}

Tensors StepVariables::clip(const std::map<std::string, Tensors>& squares) const {
  const Graph::ProvenanceScope of(main_, {.role = OpRole::kNorm});
  std::vector<Tensors> all;
  for (const auto& [key, rule] : rules_) all.push_back(squares.at(key));
  return {nn::clip_factor(nn::norm_of_chunks(all), *options_.max_grad_norm)};
}

Tensors StepVariables::scale(const Gradient& gradient) const {
  if (!options_.max_grad_norm) return {};
  const Graph::ProvenanceScope of(main_, {.role = OpRole::kNorm});
  std::map<std::string, Tensors> squares;
  for (const auto& [key, rule] : rules_) {
    const DeviceScope on(main_, device(key));
    const auto& replicas = main_.info(training_.variables[key]).variable->group;
    squares[key] = nn::squares_of_chunks(gradient(key), cache_, replicas);
  }
  return clip(squares);
}

Tensors StepVariables::scale_of_kept() const {
  if (!options_.max_grad_norm) return {};
  const Graph::ProvenanceScope of(main_, {.role = OpRole::kNorm});
  std::map<std::string, Tensors> squares = squares_;
  for (const auto& [first, stacked] : stacked_) {
    const DeviceScope on(main_, device(first));
    for (const RowId r : stacked.counts[0].first->rows.keys.ids()) {
      const Tensor row = main_.remote_load(stacked.buffer, r.value(), "squares");
      int64_t at = 0;
      for (const auto& [own, count] : stacked.counts) {
        for (size_t c = 0; c < count; ++c, ++at) {
          squares[own->rows.keys[r]].push_back(ops::reshape(ops::slice(row, {at}, {at + 1}), {}));
        }
      }
    }
  }
  return clip(squares);
}

// Makes the state of all rows at the first call for one of them.
StepVariables::Update& StepVariables::update_of(const std::string& key) {
  Variable& own = variable(key);
  if (own.update) return *own.update;
  Ir ir = main_.ir();
  const WeightRule& weight = rules_.at(key);
  const Tensor& first = training_.variables[own.rows.keys.front()];
  VariableInfo info = *main_.info(first).variable;
  const TensorSpec spec = nn::replica_sharded_spec(ir, network_.factories[key].spec(), rule());
  if (!spec.meta_shape.empty() && first.meta_shape().empty())
    info.shard = nn::shard_count(ir, first.spec(), {0, info.group});
  TensorSpec gradient = spec;
  gradient.dtype = weight.gradient.dtype();
  const auto scaled = options_.max_grad_norm ? nn::GradScale::kInput : nn::GradScale::kNone;
  const auto& [factories, step] =
      optimizer_.step_graph(ir, spec, gradient, scaled, info.group, weight.group);
  Update update{step, gradient};
  nn::NamedVariableFactories there;
  nn::NamedVariableFactories here;
  factories.for_each([&](const std::string& name, const nn::VariableFactory& factory) {
    const nn::VariableFactory state = factory.as_state_of(spec, info);
    const bool off = is_off_device(options_.locations.optimizer, state.spec(), options_.locations);
    (off ? there : here).merge(name, state);
  });
  update.there = nn::named_variable_buffers(ir, there, own.rows.keys.end_id());
  for (const RowId r : own.rows.keys.ids()) {
    const std::string& row = own.rows.keys[r];
    const nn::InitOptions init_options{.prefix =
                                           main_.info(training_.variables[row]).variable->path};
    update.here.push_back(here.init(main_, init_options, made_));
    const nn::NamedTensors remote = there.init_remote(main_, update.there, r, init_options, made_);
    for (const nn::NamedTensors* tree : {&std::as_const(update.here.back()), &remote}) {
      tree->for_each([&](const std::string& name, const Tensor& t) {
        training_.state.merge(row + "." + name, t);
      });
    }
  }
  update.kept_here.resize(own.rows.keys.size());
  if (options_.ema_decay) make_averages(own, spec, info, update);
  return own.update.emplace(std::move(update));
}

void StepVariables::make_averages(const Variable& own, const TensorSpec& spec,
                                  const VariableInfo& info, Update& update) {
  require(spec.dtype == f32, "ema_decay: trained weights must be float32, got {} for '{}'",
          name_of(spec.dtype), own.rows.keys.front());
  const bool off = is_off_device(options_.locations.optimizer, spec, options_.locations);
  if (off) update.average_there = main_.ir().remote_buffer(spec, own.rows.keys.end_id());
  update.average_here.resize(own.rows.keys.size());
  for (const RowId r : own.rows.keys.ids()) {
    const std::string& key = own.rows.keys[r];
    const VariableInfo& weight = *main_.info(training_.variables[key]).variable;
    VariableInfo average = info;
    average.path = kAveragePrefix + weight.path;
    average.initializer = weight.initializer;
    average.location =
        off ? VariableLocation{update.average_there->id, r.value()} : VariableLocation{};
    average.role = OpRole::kUpdate;
    average.owner = weight.path;
    require(made_[average.path] == 0,
            "ema_decay: variables must not have the path of the average of '{}', got '{}'", key,
            average.path);
    const std::string name = average.path;
    const Tensor t = main_.variable(spec, std::move(average), name);
    made_.add(t);
    training_.averages.merge(key, t);
    if (!off) update.average_here[r] = t;
  }
}

void StepVariables::update_average(const Update& update, const std::string& key,
                                   const RemoteEntry& row, const nn::NamedTensors& loaded,
                                   const Tensor& weight) const {
  if (!options_.ema_decay) return;
  const Tensor* const there = loaded.find_leaf("average." + key);
  const Tensor& average = there != nullptr ? *there : update.average_here[RowId(row.constant())];
  // The factors are decay and 1 − decay of one float32, so that their sum is 1.
  const double decay = static_cast<float>(*options_.ema_decay);
  ops::accumulate_moving_average_(average, weight, decay);
}

Tensor StepVariables::own(Graph& graph, const std::string& key) const {
  const Tensor whole = weight(graph, key);
  return nn::shard_count(graph.ir(), whole.spec(), rule()) > 0
             ? ops::replica_sharded_slice(whole,
                                          main_.info(training_.variables[key]).variable->group)
             : whole;
}

void StepVariables::write_back(const std::string& key, const Tensor& changed) const {
  const Tensor& variable = training_.variables[key];
  if (is_remote(key) || changed == variable) return;
  ops::copy_var_update_(
      variable, nn::gather_replica_sharded_tensor(changed, main_.info(variable).variable->group));
}

void StepVariables::update(const std::string& key, const Tensor& gradient, const Tensors& scale,
                           const Tensor& loaded) {
  const auto& [own, row] = variable_rows_.at(key);
  const std::string& first = own->rows.keys.front();
  nn::NamedTensors arguments;
  add_arguments(key, scale, arguments);
  const DeviceScope on(main_, device(key));
  const Graph::ProvenanceScope of(main_, {.role = OpRole::kUpdate, .variable = key});
  std::vector<RowTensor> tensors;
  add_rows(first, VariablePart::kState, true, tensors);
  add_rows(first, VariablePart::kValue, true, tensors);
  nn::NamedTensors here;
  {
    const Graph::IoScope scope(main_, options_.io_mode);
    for (const RowTensor& t : tensors) {
      const bool known = loaded.valid() && t.key == "value." + first;
      here.merge(t.key, known ? loaded : main_.remote_load(t.buffer, row.value(), t.name));
    }
  }
  const Tensor changed = apply(main_, first, row.value(), here, gradient, arguments);
  const Graph::IoScope scope(main_, options_.io_mode);
  for (const RowTensor& t : tensors) main_.remote_store(t.buffer, row.value(), here[t.key]);
  write_back(key, changed);
}

bool StepVariables::add_rows(const std::string& key, VariablePart part, bool stored,
                             std::vector<RowTensor>& tensors) {
  Variable& own = variable(key);
  const std::string& name = own.rows.name;
  switch (part) {
    case VariablePart::kValue:
      if (own.buffer) {
        tensors.push_back({"value." + key, name.empty() ? key : name, *own.buffer, stored, key});
      }
      return own.buffer.has_value();
    case VariablePart::kState: {
      const Update& update = update_of(key);
      const auto [states, buffers] = update.there.unpack();
      for (size_t i = 0; i < states.size(); ++i) {
        tensors.push_back({fmt::format("state.{}.{}", key, states[i]),
                           name.empty() ? states[i] : name + "." + states[i], buffers[i], stored,
                           key});
      }
      if (update.average_there)
        tensors.push_back({"average." + key, name.empty() ? "ema" : name + ".ema",
                           *update.average_there, stored, key});
      const bool averages_here = options_.ema_decay && !update.average_there;
      return update.here.front().empty() && !averages_here;
    }
    case VariablePart::kGradient: {
      Update& update = update_of(key);
      if (!update.kept_there &&
          is_off_device(options_.locations.accumulators, update.gradient, options_.locations)) {
        update.kept_there = main_.ir().remote_buffer(update.gradient, own.rows.keys.end_id());
      }
      if (update.kept_there)
        tensors.push_back({"gradient." + key, name, *update.kept_there, stored, key});
      return update.kept_there.has_value();
    }
  }
  return false;
}

Tensor StepVariables::whole(Graph& graph, const std::string& key, const RemoteEntry& row,
                            const nn::NamedTensors& loaded) const {
  const Graph::ProvenanceScope of(graph, {.variable = key});
  if (const Tensor* const t = loaded.find_leaf("value." + key))
    return nn::gather_replica_sharded_tensor(*t);
  return weight(graph, variable(key).key(row));
}

void StepVariables::keep(Graph& graph, const RemoteEntry& row, const std::vector<std::string>& keys,
                         const nn::NamedTensors& gradients) {
  std::vector<TensorArg> all;
  std::map<std::string, Tensors> squares;
  for (const std::string& key : keys) {
    if (!options_.max_grad_norm) break;
    const auto& replicas = main_.info(training_.variables[key]).variable->group;
    const Graph::ProvenanceScope of(graph, {.role = OpRole::kNorm, .variable = key});
    squares[key] = nn::squares_of_chunks(gradients[key], replicas);
    for (const Tensor& t : squares[key]) all.emplace_back(t);
  }
  bool any_remote = false;
  for (const std::string& key : keys) {
    std::vector<RowTensor> there;
    any_remote = add_rows(key, VariablePart::kGradient, true, there) || any_remote;
    if (there.empty()) {
      update_of(key).kept_here[RowId(row.constant())] = gradients[key];
    } else {
      const Graph::ProvenanceScope of(graph, {.variable = key});
      graph.remote_store(there[0].buffer, row, gradients[key]);
    }
  }
  if (all.empty()) return;
  if (!any_remote) {
    for (auto& [key, own] : squares) squares_[variable(key).key(row)] = std::move(own);
    return;
  }
  const Graph::ProvenanceScope of(graph, {.role = OpRole::kNorm});
  const Tensor stack = ops::stack(all);
  const int64_t rows = variable(keys[0]).rows.keys.end_id();
  const auto [found, added] = stacked_.try_emplace(keys[0]);
  if (added) {
    found->second.buffer = graph.ir().remote_buffer(stack.spec(), rows);
    for (const std::string& key : keys)
      found->second.counts.emplace_back(&variable(key), squares[key].size());
  }
  graph.remote_store(found->second.buffer, row, stack);
}

Tensor StepVariables::kept(const std::string& key, const RemoteEntry& row,
                           const nn::NamedTensors& loaded) const {
  const Tensor* const t = loaded.find_leaf("gradient." + key);
  return t != nullptr ? *t : variable(key).update->kept_here[RowId(row.constant())];
}

Tensor StepVariables::kept(const std::string& key) const {
  const auto& [own, row] = variable_rows_.at(key);
  const auto& there = own->update->kept_there;
  return there ? main_.remote_load(*there, row.value(), key) : own->update->kept_here[row];
}

void StepVariables::add_arguments(const std::string& key, const Tensors& scale,
                                  nn::NamedTensors& arguments) {
  const size_t group = rules_.at(key).group;
  const std::string step = fmt::format("step_size.{}", group);
  if (arguments.has_leaf(step)) return;
  arguments.merge(step, step_sizes_.of(group));
  const Tensors& hypers = step_sizes_.hypers(group);
  for (size_t i = 0; i < hypers.size(); ++i)
    arguments.merge(fmt::format("hyper.{}.{}", group, i), hypers[i]);
  if (!scale.empty() && !arguments.has_leaf("scale")) arguments.merge("scale", scale[0]);
}

Tensor StepVariables::apply(Graph& graph, const std::string& key, const RemoteEntry& row,
                            const nn::NamedTensors& loaded, const Tensor& gradient,
                            const nn::NamedTensors& arguments) {
  const Update& update = update_of(key);
  SLUICE_CHECK(gradient.spec() == update.gradient);
  const size_t group = rules_.at(key).group;
  const Graph::ProvenanceScope of(graph, {.role = OpRole::kUpdate, .variable = key});
  nn::NamedTensors state;
  if (loaded.contains("state." + key)) state = loaded.tree("state." + key);
  if (!update.here.front().empty()) state.update(update.here[RowId(row.constant())]);
  Tensors hypers;
  while (const Tensor* const hyper =
             arguments.find_leaf(fmt::format("hyper.{}.{}", group, hypers.size())))
    hypers.push_back(*hyper);
  const Tensor* const scale = arguments.find_leaf("scale");
  const Tensor* const value = loaded.find_leaf("value." + key);
  const Tensor changed = value != nullptr ? *value : own(graph, variable(key).key(row));
  update.step.bind(state).call(changed, gradient, arguments[fmt::format("step_size.{}", group)],
                               scale != nullptr ? Tensors{*scale} : Tensors{}, hypers);
  update_average(update, key, row, loaded, changed);
  return changed;
}

void StepVariables::update(Graph& graph, const std::string& key, const RemoteEntry& row,
                           const nn::NamedTensors& loaded, const Tensor& gradient,
                           const nn::NamedTensors& arguments) {
  const Tensor changed = apply(graph, key, row, loaded, gradient, arguments);
  if (row.tensor() == nullptr) write_back(variable(key).key(row), changed);
}

}  // namespace sluice::train
