#include "sluice/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "sluice/base/error.h"
#include "sluice/nn/dot_tree.h"
#include "sluice/ops/updates.h"

namespace sluice::nn {

Module::Module() : declarations_(std::make_shared<Declarations>()) {}
Module::Module(const Module&) = default;
Module::Module(Module&&) noexcept = default;
Module& Module::operator=(const Module&) = default;
Module& Module::operator=(Module&&) noexcept = default;
Module::~Module() = default;

Builder::Builder(internal::BuildState& state) : state_(state) {}
Builder::~Builder() = default;

namespace internal {

std::string class_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  const std::string full = status == 0 ? text.get() : type.name();
  // The name begins after the last "::" outside brackets. Namespaces, functions and templates may
  // precede it.
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    if (full[i] == '<' || full[i] == '(' || full[i] == '{') ++depth;
    if (full[i] == '>' || full[i] == ')' || full[i] == '}') --depth;
    if (depth == 0 && full.compare(i, 2, "::") == 0) begin = i + 2;
  }
  const std::string name = full.substr(begin);
  return name.substr(0, name.find('<'));
}

void declare(NamedVariableFactories& factories, const Declarations& declarations) {
  for (const auto& [name, child] : declarations.children) declare(factories.node(name), *child);
}

void add_child(Module& parent, const std::string& name, const Module& child) {
  check_key(name);
  const auto& own = parent.declarations();
  require(own->names.insert(name).second, "module: a submodule '{}' is declared already", name);
  own->children.emplace_back(name, child.declarations());
}

std::string input_name(size_t position) {
  return position == 0 ? "x" : fmt::format("x{}", position);
}

}  // namespace internal

Builder::Builder(Builder& parent, const std::string& name)
    : state_(parent.state_), path_(parent.dotted(name)) {
  std::string scope = name;
  std::replace(scope.begin(), scope.end(), '.', '/');
  scope_.emplace(parent.graph(), scope);
  if (parent.path_.empty()) state_.submodules.push_back(name);
}

const Tensor& Builder::seed() const {
  require(mode() == RunMode::kTrain,
          "module '{}': a seed exists in training only; ask Builder::mode() first", path_);
  require(state_.seed.valid(),
          "module '{}': graph {} must have a seed, got none; a train::Network has one, and other "
          "graphs pass it as an argument: dropout(b, x, seed)",
          path_, graph().name());
  return state_.seed;
}

Tensor Builder::add_variable_input(const std::string& name, Initializer initializer, Shape shape,
                                   DType dtype, Pass pass) {
  return add_variable_input(
      name, VariableFactory(TensorSpec{std::move(shape), dtype, {}}, std::move(initializer), pass));
}

Tensor Builder::add_variable_input(const std::string& name, VariableFactory factory) {
  const std::string key = dotted(name);
  require(!state_.factories.has_leaf(key),
          "module: variable '{}' of graph {} exists already; to use a module twice, outline it or "
          "make two modules",
          key, graph().name());
  const Tensor input = factory.create_input(graph(), key);
  state_.factories.merge(key, std::move(factory));
  state_.args.merge(key, input);
  return input;
}

const Tensor& Builder::variable(const std::string& name) const {
  const std::string key = dotted(name);
  require(
      state_.args.has_leaf(key),
      "module: graph {} must have a variable '{}', got none; build the layer that adds it first",
      graph().name(), key);
  return state_.args[key];
}

Tensor Builder::add_running_input(const std::string& name, Initializer initializer, Shape shape,
                                  DType dtype) {
  require(is_float(dtype), "add_running_input: '{}' must be floating point, got {}", dotted(name),
          name_of(dtype));
  const bool written = mode() == RunMode::kTrain && !state_.updates;
  const VariableFactory factory(TensorSpec{std::move(shape), dtype, {}}, std::move(initializer),
                                written ? Pass::kByReference : Pass::kByValue);
  return add_variable_input(name, factory.running());
}

void Builder::update_running(const Tensor& variable, const Tensor& value, const RunningRule& rule) {
  std::string key;
  state_.args.for_each([&](const std::string& k, const Tensor& t) {
    if (t == variable && state_.factories[k].role() == Role::kRunning) key = k;
  });
  require(!key.empty(),
          "update_running: the variable must be a result of add_running_input(), got '{}'",
          variable.valid() ? variable.name() : "");
  require(mode() == RunMode::kTrain,
          "update_running: variable '{}' is updated in evaluation; ask Builder::mode() first", key);
  require(value.valid() && graph().owns(value) && is_float(value.dtype()) &&
              value.shape() == variable.shape(),
          "update_running: the value of '{}' must be floating point of shape {}, got {}", key,
          to_string(variable.shape()), value.valid() ? to_string(value.spec()) : "an empty handle");
  require(state_.updated.insert(key).second,
          "update_running: variable '{}' must have one update, got a second one", key);
  if (state_.updates) {
    const Version version = graph().storage(graph().info(value).storage).version();
    state_.updates->push_back({key, value, rule, version});
  } else {
    ops::scaled_add_(variable, value, rule.keep, rule.take);
  }
}

// An output that is an input of the graph has no value of its own.
void Builder::name_output(const Tensor& output) {
  if (!output.valid() || !graph().owns(output)) return;
  const TensorInfo& info = graph().info(output);
  if (info.producer.valid())
    state_.watched.push_back({path_, output, graph().storage(info.storage).version()});
}

Tensor Builder::watch(const std::string& name, const Tensor& value) {
  require(!name.empty(), "watch: the name of a value must not be empty");
  require(value.valid() && graph().owns(value), "watch: '{}' must be a tensor of graph {}, got {}",
          dotted(name), graph().name(), value.valid() ? "another one" : "an empty handle");
  const Version version = graph().storage(graph().info(value).storage).version();
  state_.watched.push_back({dotted(name), value, version, /*declared=*/true});
  return value;
}

Tensor Builder::add_replica_sharded_variable_input(const std::string& name, Initializer initializer,
                                                   Shape shape, DType dtype, Pass pass,
                                                   std::optional<ReplicaGrouping> group) {
  const int replicas = ir().fix_replication("replicated tensor sharding");
  const int size = group ? group->size() : replicas;
  const VariableFactory whole(TensorSpec{std::move(shape), dtype, {}}, std::move(initializer), pass,
                              std::move(group));
  return add_variable_input(name, whole.sharded(size));
}

NamedTensors Builder::add_variable_inputs(const std::string& name,
                                          const NamedVariableFactories& factories) {
  NamedTensors result;
  factories.for_each([&](const std::string& key, const VariableFactory& factory) {
    result.merge(key, add_variable_input(name + "." + key, factory));
  });
  return result;
}

}  // namespace sluice::nn
