#pragma once
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "sluice/ir/ir.h"
#include "sluice/nn/graph_with_named_args.h"
#include "sluice/nn/variable_factory.h"

namespace sluice::nn {

/// What a module declares of its submodules; copies of the module share it.
struct Declarations {
  std::vector<std::pair<std::string, std::shared_ptr<const Declarations>>> children;
};

/// Base of layers and models: something with state that builds graphs. A module has
///
///     Tensor build(nn::Builder& b, Tensor x) const;
///
/// with any arguments, returning nothing, a Tensor or Tensors. Submodules are members of type Child
/// (or Children), declared with a name; their order fixes the order of the factories' keys,
/// whatever `build` does.
class Module {
 public:
  const std::shared_ptr<Declarations>& declarations() const { return declarations_; }

 private:
  std::shared_ptr<Declarations> declarations_ = std::make_shared<Declarations>();
};

namespace internal {

/// What a create_graph collects while the module builds.
struct BuildState {
  Graph& graph;
  NamedVariableFactories factories;
  NamedTensors args;
};

/// The class's name without namespaces and template arguments.
std::string class_name(const std::type_info& type);
/// Makes a node for every declared submodule, so that their order is the declarations'.
void declare(NamedVariableFactories& factories, const Declarations& declarations);
/// Adds a submodule to its parent's declarations; Error{kUsage} for a bad name or one that is
/// taken.
void add_child(Module& parent, const std::string& name, const Module& child);

}  // namespace internal

/// What a module builds with: the graph, and the module's place in the model.
class Builder {
 public:
  explicit Builder(internal::BuildState& state) : state_(state) {}
  /// The builder of submodule `name`; while it lives, ops carry the submodule's path.
  Builder(Builder& parent, const std::string& name);
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Graph& graph() const { return state_.graph; }
  Ir ir() const { return state_.graph.ir(); }
  /// Dotted path of this module in the graph that is built; empty for the outermost.
  const std::string& path() const { return path_; }

  /// A variable of the module: a graph input and the factory that will make the variable for it.
  /// Error{kUsage} if the name is taken, as when one module builds twice in a graph: outline it, or
  /// make two modules.
  Tensor add_variable_input(const std::string& name, Initializer initializer, Shape shape,
                            DType dtype = f32, Pass pass = Pass::kByValue);
  Tensor add_variable_input(const std::string& name, VariableFactory factory);
  /// A variable of which each replica holds a shard, of a tensor of the whole `shape`, initialised
  /// whole: a graph input that is a shard (nn/rts.h).
  Tensor add_replica_sharded_variable_input(const std::string& name, Initializer initializer,
                                            Shape shape, DType dtype = f32,
                                            Pass pass = Pass::kByValue,
                                            std::optional<ReplicaGrouping> group = {});
  /// Fresh inputs for all of `factories`, which are copied under `name`: the variables of one more
  /// user of an outlined graph, to be given to its `bind`.
  NamedTensors add_variable_inputs(const std::string& name,
                                   const NamedVariableFactories& factories);
  /// An input of the graph that is not a variable.
  Tensor add_input(const TensorSpec& spec, std::string name, Pass pass = Pass::kByValue) {
    return graph().input(spec, std::move(name), pass);
  }
  /// Builds a module in place as submodule `name`.
  template <typename M, typename... Args>
  auto inlined(const std::string& name, const M& module, const Args&... args) {
    Builder b(*this, name);
    return module.build(b, args...);
  }

 private:
  std::string dotted(const std::string& name) const {
    return path_.empty() ? name : path_ + "." + name;
  }

  internal::BuildState& state_;
  std::string path_;
  std::optional<Graph::Scope> scope_;
};

/// A submodule, declared where it is a member: `nn::Child<Linear> fc1_{*this, "fc1", 512};`. The
/// arguments after the name make the submodule. `fc1_(b, x)` builds it in place.
template <typename M>
class Child {
 public:
  template <typename... Args>
  Child(Module& parent, std::string name, Args&&... args)
      : name_(std::move(name)), module_(std::forward<Args>(args)...) {
    internal::add_child(parent, name_, module_);
  }
  template <typename... Args>
  auto operator()(Builder& b, const Args&... args) const {
    return b.inlined(name_, module_, args...);
  }
  const std::string& name() const { return name_; }
  const M& operator*() const { return module_; }
  const M* operator->() const { return &module_; }

 private:
  std::string name_;
  M module_;
};

/// A list of submodules of one class with keys `name.0`, `name.1`, …: `nn::Children<Linear>
/// layers_{*this, "layers"};`, filled by `layers_.add(512)` in the constructor.
template <typename M>
class Children {
 public:
  class Item {
   public:
    Item(std::string name, M module) : name_(std::move(name)), module_(std::move(module)) {}
    template <typename... Args>
    auto operator()(Builder& b, const Args&... args) const {
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
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::string name_;
  Module list_;
  std::vector<Item> items_;
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
/// Anything else is handed to `build` as it is.
template <typename Other>
const Other& make_input(Graph&, const Other& value, size_t) {
  return value;
}

inline void add_outputs(Graph& graph, const Tensor& output) { graph.add_output(output); }
inline void add_outputs(Graph& graph, const Tensors& outputs) {
  for (const Tensor& t : outputs) graph.add_output(t);
}

}  // namespace internal

/// Makes a graph from a module, and the factories of its variables. Tensors, TensorSpecs,
/// NamedInputs and vectors of them become inputs (of a Tensor only the spec counts: nothing is
/// connected); other arguments go to `build` as they are. Variables become inputs after these, in
/// the order in which `build` adds them. The graph is called
/// "<class>_subgraph(N)".
template <typename M, typename... Inputs>
std::pair<NamedVariableFactories, GraphWithNamedArgs> create_graph(Ir ir, const M& module,
                                                                   const Inputs&... inputs) {
  internal::BuildState state{ir.create_empty_graph(internal::class_name(typeid(M))), {}, {}};
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

}  // namespace sluice::nn
