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

/// The arguments of a call. Positional arguments are tensors and numbers; a number becomes a
/// constant of the input's dtype. Tensors may also be given by input of the called graph or by
/// name. A Graph* is the graph to call in (default: the graph of the tensors).
class CallArguments {
 public:
  CallArguments();
  CallArguments(const CallArguments&) = delete;
  CallArguments& operator=(const CallArguments&) = delete;
  ~CallArguments();
  template <typename... Args>
  explicit CallArguments(const Args&... args) : CallArguments() {
    (add(args), ...);
  }

 private:
  friend class BoundGraph;

  void add(const Tensor& t);
  void add(const TensorArg& t) { add(t.tensor); }
  void add(const Tensors& tensors);
  void add_number(double value);
  template <typename Number>
  requires std::integral<Number> || std::floating_point<Number>
  void add(Number value) { add_number(static_cast<double>(value)); }
  void add(const TensorMap& by_input);
  void add(const NamedTensors& named);
  void add(Graph* parent) { parent_ = parent; }

  std::vector<std::variant<Tensor, double>> positional_;
  TensorMap by_input_;
  NamedTensors named_;
  Graph* parent_ = nullptr;
};

class BoundGraph;

/// A graph and its named inputs (the variables of a module). It is cheap to copy and keeps its
/// program alive.
class GraphWithNamedArgs {
 public:
  /// `args` are inputs of `graph`; Error{kUsage} otherwise.
  explicit GraphWithNamedArgs(
      Graph& graph, NamedTensors args = {},
      std::shared_ptr<const transforms::GradGraphInfo> grad_graph_info = nullptr);
  GraphWithNamedArgs(const GraphWithNamedArgs&);
  GraphWithNamedArgs(GraphWithNamedArgs&&) noexcept;
  GraphWithNamedArgs& operator=(const GraphWithNamedArgs&);
  GraphWithNamedArgs& operator=(GraphWithNamedArgs&&) noexcept;
  ~GraphWithNamedArgs();

  Graph& graph() const { return ir_.graph(graph_); }
  const NamedTensors& args() const { return args_; }
  /// Describes the inputs and outputs of a gradient graph. Error{kUsage} for any other graph.
  const transforms::GradGraphInfo& grad_graph_info() const;

  /// Returns the graph with tensors for its named inputs, matched by dotted key. Ignores keys that
  /// only the graph or only `tensors` has; call() reports named inputs without a tensor.
  BoundGraph bind(const NamedTensors& tensors) const;

  /// Calls the graph. Tensors and numbers are the inputs from the first on. A NamedTensors contains
  /// named inputs, a TensorMap contains inputs by handle, and a Graph* is the graph to call in.
  /// Error{kUsage} for missing inputs and wrong specs.
  template <typename... Args>
  Tensors call(const Args&... args) const {
    return call_with(CallArguments(args...)).outputs();
  }
  template <typename... Args>
  CallSiteInfo call_with_info(const Args&... args) const {
    return call_with(CallArguments(args...));
  }
  CallSiteInfo call_with(const CallArguments& arguments) const;

  /// Returns the schedule in the format of the reference documents. Named inputs are "key=%i".
  std::string print_schedule() const;
  /// Returns the gradient graph (see nn/autodiff.h).
  GraphWithNamedArgs autodiff(const transforms::AutodiffOptions& options) const;
  GraphWithNamedArgs autodiff() const;

 private:
  Ir ir_;
  GraphId graph_;
  NamedTensors args_;
  std::shared_ptr<const transforms::GradGraphInfo> grad_graph_info_;
};

/// A graph with tensors bound to some of its inputs. A call provides the remaining inputs.
class BoundGraph {
 public:
  BoundGraph(GraphWithNamedArgs graph, const NamedTensors& tensors);
  BoundGraph(const BoundGraph&);
  BoundGraph(BoundGraph&&) noexcept;
  BoundGraph& operator=(const BoundGraph&);
  BoundGraph& operator=(BoundGraph&&) noexcept;
  ~BoundGraph();

  Graph& graph() const { return graph_.graph(); }
  const GraphWithNamedArgs& graph_with_named_args() const { return graph_; }
  /// The bound tensors, by input of the graph.
  const TensorMap& bound() const { return bound_; }
  /// Returns this graph with more tensors bound. A new tensor replaces one that is already bound.
  BoundGraph bind(const NamedTensors& more) const;

  /// Calls the graph like GraphWithNamedArgs::call(). Named arguments of the call replace bound
  /// tensors. Error{kUsage} lists missing and bound names if a named input has no tensor.
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
  /// All names that were bound, including names that the graph does not have.
  std::vector<std::string> given_;
};

/// Returns "<sluice::nn::BoundGraph object at 0x7ffc5d1e4a20>".
std::string to_string(const BoundGraph& graph);

}  // namespace sluice::nn
