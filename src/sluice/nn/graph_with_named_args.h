#pragma once
#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/ir/call.h"
#include "sluice/nn/named_tensors.h"

namespace sluice::transforms {
class GradGraphInfo;
struct AutodiffOptions;
}  // namespace sluice::transforms

namespace sluice::nn {

/// Arguments of a call: positional tensors and numbers (which become constants of the input's
/// dtype), tensors by input of the called graph, tensors by name, and the graph to call in
/// (default: where the tensors live).
class CallArguments {
 public:
  template <typename... Args>
  explicit CallArguments(const Args&... args) {
    (add(args), ...);
  }

 private:
  friend class BoundGraph;

  void add(const Tensor& t) { positional_.emplace_back(t); }
  void add(const TensorArg& t) { positional_.emplace_back(t.tensor); }
  void add(const Tensors& tensors) {
    for (const Tensor& t : tensors) add(t);
  }
  template <typename Number>
  requires std::integral<Number> || std::floating_point<Number>
  void add(Number value) { positional_.emplace_back(static_cast<double>(value)); }
  void add(const TensorMap& by_input) {
    by_input_.insert(by_input_.end(), by_input.begin(), by_input.end());
  }
  void add(const NamedTensors& named) { named_.update(named, Overwrite::kYes); }
  void add(Graph* parent) { parent_ = parent; }

  std::vector<std::variant<Tensor, double>> positional_;
  TensorMap by_input_;
  NamedTensors named_;
  Graph* parent_ = nullptr;
};

class BoundGraph;

/// A graph and its inputs that have names (a module's variables). Cheap to copy; keeps its program
/// alive.
class GraphWithNamedArgs {
 public:
  /// `args` are inputs of `graph`; Error{kUsage} otherwise.
  explicit GraphWithNamedArgs(
      Graph& graph, NamedTensors args = {},
      std::shared_ptr<const transforms::GradGraphInfo> grad_graph_info = nullptr);

  Graph& graph() const { return ir_.graph(graph_); }
  const NamedTensors& args() const { return args_; }
  /// What the inputs and outputs of a gradient graph are; Error{kUsage} if this is none.
  const transforms::GradGraphInfo& grad_graph_info() const;

  /// The graph with tensors for its named inputs, by dotted key. Keys that only one side has are
  /// ignored here; an input left without a tensor is an error at `call`.
  BoundGraph bind(const NamedTensors& tensors) const;

  /// Calls the graph: tensors and numbers fill its inputs from the first; a NamedTensors gives
  /// named inputs, a TensorMap inputs by handle, a Graph* the graph to call in. Error{kUsage} for
  /// missing inputs and wrong specs.
  template <typename... Args>
  Tensors call(const Args&... args) const {
    return call_with_info(args...).outputs();
  }
  template <typename... Args>
  CallSiteInfo call_with_info(const Args&... args) const;

  /// The schedule as the documents print it, named inputs as "key=%i".
  std::string print_schedule() const;
  /// The gradient graph (see nn/autodiff.h).
  GraphWithNamedArgs autodiff(const transforms::AutodiffOptions& options) const;
  GraphWithNamedArgs autodiff() const;

 private:
  Ir ir_;
  GraphId graph_;
  NamedTensors args_;
  std::shared_ptr<const transforms::GradGraphInfo> grad_graph_info_;
};

/// A graph some of whose inputs have been given: a graph with an inner state. Called with the
/// others.
class BoundGraph {
 public:
  BoundGraph(GraphWithNamedArgs graph, const NamedTensors& tensors);

  Graph& graph() const { return graph_.graph(); }
  const GraphWithNamedArgs& graph_with_named_args() const { return graph_; }
  /// Tensors by input of the graph.
  const TensorMap& bound() const { return bound_; }
  /// This with further tensors; where both give one, the new wins.
  BoundGraph bind(const NamedTensors& more) const;

  /// As GraphWithNamedArgs::call; named arguments given here win over bound ones. Error{kUsage}
  /// listing missing and bound names if a named input has no tensor.
  template <typename... Args>
  Tensors call(const Args&... args) const {
    return call_with_info(args...).outputs();
  }
  template <typename... Args>
  CallSiteInfo call_with_info(const Args&... args) const {
    return call_with(CallArguments(args...));
  }
  CallSiteInfo call_with(const CallArguments& arguments) const;

 private:
  GraphWithNamedArgs graph_;
  TensorMap bound_;
  std::vector<std::string>
      given_;  ///< All names that were given, also those that the graph does not have.
};

template <typename... Args>
CallSiteInfo GraphWithNamedArgs::call_with_info(const Args&... args) const {
  return bind({}).call_with_info(args...);
}

/// "<sluice::nn::BoundGraph object at 0x7ffc5d1e4a20>".
std::string to_string(const BoundGraph& graph);

}  // namespace sluice::nn
