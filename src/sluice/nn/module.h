#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "sluice/ir/ir.h"
#include "sluice/nn/block.h"
#include "sluice/nn/graph_with_named_args.h"
#include "sluice/nn/variable_factory.h"

namespace sluice::nn {

/// Whether a model is built for training or for evaluation.
enum class RunMode { kTrain, kEvaluate };

/// The update of a running variable by a value: variable = keep·variable + take·value.
struct RunningRule {
  double keep = 0.9;
  double take = 0.1;
};

/// The submodules that a module declares. Copies of the module share them.
struct Declarations {
  std::vector<std::pair<std::string, std::shared_ptr<const Declarations>>> children;
  std::set<std::string> names;  ///< Names of `children`.
};

/// Base class of layers and models. A module has variables and builds graphs. It must define
///
///     Tensor build(nn::Builder& b, Tensor x) const;
///
/// with any arguments. `build` returns void, Tensor or Tensors. Submodules are members of type
/// Child or Children, declared with a name. The order of the declarations, not of `build`, is the
/// order of the factories' keys.
class Module {
 public:
  Module();
  Module(const Module&);
  Module(Module&&) noexcept;
  Module& operator=(const Module&);
  Module& operator=(Module&&) noexcept;
  ~Module();
  const std::shared_ptr<Declarations>& declarations() const { return declarations_; }

 private:
  std::shared_ptr<Declarations> declarations_;
};

namespace internal {

/// An update that a module declared.
struct RunningUpdate {
  std::string key = {};  ///< Key of the running variable.
  Tensor value = {};
  RunningRule rule = {};
  Version version{0};  ///< Version of the value.
};

/// The tensor that a submodule returned, or a value that it declared by Builder::watch().
struct WatchedValue {
  std::string name = {};  ///< Path of the module, and the name in it.
  Tensor value = {};
  Version version{0};     ///< Version of the value.
  bool declared = false;  ///< By Builder::watch().
};

/// State of create_graph() while the module builds.
struct BuildState {
  Graph& graph;
  NamedVariableFactories factories;
  NamedTensors args;
  RunMode mode = RunMode::kTrain;
  /// Collects updates for a caller that applies them. Absent: the graph applies them itself.
  std::optional<std::vector<RunningUpdate>> updates = {};
  std::vector<std::string> submodules = {};  ///< Names of the outermost module's, as built.
  std::set<std::string> updated = {};        ///< Keys of running variables with an update.
  Tensor seed = {};                          ///< Builder::seed(); empty: none.
  std::vector<WatchedValue> watched = {};    ///< Values that have a name.
};

/// Returns the name of the class without namespaces and template arguments.
std::string class_name(const std::type_info& type);
/// Creates a node for every declared submodule, so that nodes are in the order of declarations.
void declare(NamedVariableFactories& factories, const Declarations& declarations);
/// Adds a submodule to its parent's declarations. Error{kUsage} if the name is invalid or already
/// declared.
void add_child(Module& parent, const std::string& name, const Module& child);

}  // namespace internal

/// Builds a module into a graph. Knows the module's path in the model.
class Builder {
 public:
  explicit Builder(internal::BuildState& state);
  /// Creates the builder of submodule `name`. While it exists, new ops get the submodule's path.
  Builder(Builder& parent, const std::string& name);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Graph& graph() const { return state_.graph; }
  Ir ir() const { return state_.graph.ir(); }
  /// Dotted path of this module in the graph; empty for the outermost module.
  const std::string& path() const { return path_; }
  RunMode mode() const { return state_.mode; }
  /// Returns the seed of a network in training, a uint32[2] tensor with a value of its own in each
  /// micro-batch. Layers fold it with their path (fold_seed()). Error{kUsage} in evaluation, where
  /// layers do not draw, and in a graph of create_graph(), whose caller passes a seed.
  const Tensor& seed() const;

  /// Adds a variable of the module: a graph input, and the factory that later creates the variable.
  /// Returns the input. Error{kUsage} if the name exists already. This happens if one module builds
  /// twice in a graph: outline it, or make two modules.
  Tensor add_variable_input(const std::string& name, Initializer initializer, Shape shape,
                            DType dtype = f32, Pass pass = Pass::kByValue);
  Tensor add_variable_input(const std::string& name, VariableFactory factory);
  /// Returns the input of a variable that this module, or a submodule of it, added before:
  /// variable("tokens.weight"). A layer that reads it shares the weight (tied weights).
  /// Error{kUsage} if there is none.
  const Tensor& variable(const std::string& name) const;
  /// Adds a variable that is sharded over the replicas of `group` (default: all). `shape` and
  /// `initializer` describe the whole tensor. Returns a graph input that is a shard (nn/rts.h).
  Tensor add_replica_sharded_variable_input(const std::string& name, Initializer initializer,
                                            Shape shape, DType dtype = f32,
                                            Pass pass = Pass::kByValue,
                                            std::optional<ReplicaGrouping> group = {});
  /// Adds a running variable, such as the running mean of a batch norm: a variable that training
  /// updates by update_running(), without a gradient and without an optimizer. Returns the input.
  /// Training in a train::Network may read it or update it, but not both. Evaluation reads the
  /// variable that training updated. Errors are those of add_variable_input().
  Tensor add_running_input(const std::string& name, Initializer initializer, Shape shape,
                           DType dtype = f32);
  /// Declares the update of a running variable of this graph by a value that the graph computes in
  /// each call. In a train::Network, the training step applies the update once for each
  /// micro-batch, in ascending order. It does so once even if it computes `value` again for a
  /// gradient. Replicas average the variable once for each update of the weights. A graph of
  /// create_graph() writes the variable, which is then passed by reference. Error{kUsage} unless
  /// `variable` is a result of add_running_input() without an update and `value` is floating point
  /// with its shape, and in evaluation.
  void update_running(const Tensor& variable, const Tensor& value, const RunningRule& rule = {});
  /// Names a value of a train::Network that its user may ask for (train::Watch::values), as
  /// "<path>.<name>", and returns it. The tensor that a submodule returns has the submodule's path
  /// as its name. Names change no program, and other graphs ignore them. Error{kUsage} unless
  /// `value` is a tensor of this graph, and for an empty name.
  Tensor watch(const std::string& name, const Tensor& value);
  /// Adds new inputs for all of `factories` and copies the factories under `name`. Returns the
  /// inputs, which are the variables for one caller of an outlined graph. Pass them to bind() of
  /// that graph.
  NamedTensors add_variable_inputs(const std::string& name,
                                   const NamedVariableFactories& factories);
  /// Adds an input of the graph that is not a variable.
  Tensor add_input(const TensorSpec& spec, std::string name, Pass pass = Pass::kByValue) {
    return graph().input(spec, std::move(name), pass);
  }
  /// Builds a module in place as submodule `name`.
  template <typename M, typename... Args>
  auto inlined(const std::string& name, const M& module, const Args&... args) {
    Builder b(*this, name);
    if constexpr (std::is_same_v<decltype(module.build(b, args...)), Tensor>) {
      const Tensor output = module.build(b, args...);
      b.name_output(output);
      return output;
    } else {
      return module.build(b, args...);
    }
  }

 private:
  void name_output(const Tensor& output);
  std::string dotted(const std::string& name) const {
    return path_.empty() ? name : path_ + "." + name;
  }

  internal::BuildState& state_;
  std::string path_;
  std::optional<Graph::Scope> scope_;
};

/// A submodule, which is a member of its parent: `nn::Child<Linear> fc1_{*this, "fc1", 512};`. The
/// arguments after the name are those of the submodule's constructor. `fc1_(b, x)` builds it in
/// place. `fc1_.in_block("B1")` names its block (nn/block.h).
template <typename M>
class Child : public BlockMark {
 public:
  template <typename... Args>
  Child(Module& parent, std::string name, Args&&... args)
      : name_(std::move(name)), module_(std::forward<Args>(args)...) {
    internal::add_child(parent, name_, module_);
    set_owner(name_);
  }
  template <typename... Args>
  auto operator()(Builder& b, const Args&... args) const {
    const std::unique_ptr<Block> block = open(b);
    return b.inlined(name_, module_, args...);
  }
  const std::string& name() const { return name_; }
  const M& operator*() const { return module_; }
  const M* operator->() const { return &module_; }

 private:
  std::string name_;
  M module_;
};

/// A list of submodules of one class with keys `name.0`, `name.1`, …. Declare it with
/// `nn::Children<Linear> layers_{*this, "layers"};` and call `layers_.add(512)` in the constructor.
template <typename M>
class Children {
 public:
  class Item : public BlockMark {
   public:
    Item(std::string name, M module) : name_(std::move(name)), module_(std::move(module)) {
      set_owner(name_);
    }
    template <typename... Args>
    auto operator()(Builder& b, const Args&... args) const {
      const std::unique_ptr<Block> block = open(b);
      return b.inlined(name_, module_, args...);
    }
    const M& operator*() const { return module_; }

   private:
    std::string name_;
    M module_;
  };

  Children(Module& parent, std::string name) : name_(std::move(name)) {
    internal::add_child(parent, name_, list_);
  }
  template <typename... Args>
  void add(Args&&... args) {
    const std::string index = std::to_string(items_.size());
    M module(std::forward<Args>(args)...);
    internal::add_child(list_, index, module);
    items_.emplace_back(name_ + "." + index, std::move(module));
  }
  size_t size() const { return items_.size(); }
  const Item& operator[](size_t i) const { return items_[i]; }
  Item& operator[](size_t i) { return items_[i]; }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::string name_;
  Module list_;
  std::deque<Item> items_;  ///< References to items stay valid when items are added.
};

namespace internal {

std::string input_name(size_t position);

inline Tensor make_input(Graph& graph, const TensorSpec& spec, size_t position) {
  return graph.input(spec, input_name(position));
}
inline Tensor make_input(Graph& graph, const Tensor& like, size_t position) {
  return graph.input(like.spec(), input_name(position));
}
inline Tensor make_input(Graph& graph, const NamedInput& input, size_t) {
  return graph.input(input.spec, input.name, input.pass);
}
template <typename Element>
requires std::is_same_v<Element, Tensor> || std::is_same_v<Element, TensorSpec> ||
    std::is_same_v<Element, NamedInput>
        Tensors make_input(Graph& graph, const std::vector<Element>& list, size_t position) {
  Tensors result;
  for (size_t i = 0; i < list.size(); ++i) {
    result.push_back(make_input(graph, list[i], position));
  }
  return result;
}
/// Passes any other argument to `build` unchanged.
template <typename Other>
const Other& make_input(Graph&, const Other& value, size_t) {
  return value;
}

inline void add_outputs(Graph& graph, const Tensor& output) { graph.add_output(output); }
inline void add_outputs(Graph& graph, const Tensors& outputs) {
  for (const Tensor& t : outputs) graph.add_output(t);
}

template <typename M, typename... Inputs>
std::pair<NamedVariableFactories, GraphWithNamedArgs> create_graph(Ir ir, RunMode mode,
                                                                   const M& module,
                                                                   const Inputs&... inputs) {
  internal::BuildState state{ir.create_empty_graph(internal::class_name(typeid(M))), {}, {}, mode};
  if constexpr (std::is_base_of_v<Module, M>)
    internal::declare(state.factories, *module.declarations());
  Builder b(state);
  size_t position = 0;
  auto make = [&](const auto& input) -> decltype(auto) {
    return internal::make_input(state.graph, input, position++);
  };
  const std::tuple<decltype(make(inputs))...> arguments{make(inputs)...};
  auto build = [&](const auto&... args) { return module.build(b, args...); };
  if constexpr (std::is_void_v<decltype(std::apply(build, arguments))>) {
    std::apply(build, arguments);
  } else {
    internal::add_outputs(state.graph, std::apply(build, arguments));
  }
  GraphWithNamedArgs graph(state.graph, std::move(state.args));
  return {std::move(state.factories), std::move(graph)};
}

}  // namespace internal

/// Creates a graph from a module. Tensors, TensorSpecs, NamedInputs and vectors of them become
/// inputs; only the spec of a Tensor is used. Other arguments are passed to `build` unchanged.
/// Variables become inputs after these, in the order in which `build` adds them. The name of the
/// graph is "<class>_subgraph(N)". Returns the factories of the variables, and the graph. A call of
/// the graph updates the running variables that are bound to it.
template <typename M, typename... Inputs>
std::pair<NamedVariableFactories, GraphWithNamedArgs> create_graph(Ir ir, const M& module,
                                                                   const Inputs&... inputs) {
  return internal::create_graph(std::move(ir), RunMode::kTrain, module, inputs...);
}

/// Creates a graph like create_graph(), but for evaluation: Builder::mode() is
/// RunMode::kEvaluate, and modules read their running variables.
template <typename M, typename... Inputs>
std::pair<NamedVariableFactories, GraphWithNamedArgs> create_eval_graph(Ir ir, const M& module,
                                                                        const Inputs&... inputs) {
  return internal::create_graph(std::move(ir), RunMode::kEvaluate, module, inputs...);
}

}  // namespace sluice::nn
