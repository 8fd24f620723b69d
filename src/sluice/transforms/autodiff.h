#pragma once
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sluice/ir/call.h"

namespace sluice::transforms {

enum class Connection {
  kFwd,      ///< The value of a forward tensor.
  kFwdGrad,  ///< The gradient of a forward tensor.
};

/// What an input or output of a gradient graph stands for.
struct ExpectedConnection {
  Connection type;
  Tensor fwd_tensor;
};

/// How a gradient graph is connected to the forward graph that it was made from.
class GradGraphInfo {
 public:
  /// The gradient graph has `first_input` inputs before those expected.
  GradGraphInfo(Graph& forward_graph, Graph& graph, std::vector<ExpectedConnection> expected_inputs,
                std::vector<ExpectedConnection> expected_outputs, size_t first_input = 0);

  Graph& graph() const { return ir_.graph(graph_); }
  Graph& forward_graph() const { return ir_.graph(forward_graph_); }
  /// One entry for each of the gradient graph's first inputs: gradients, then values. (Inputs that
  /// another transform added, accumulators say, come after them; of a phase the row is before them.)
  const std::vector<ExpectedConnection>& expected_inputs() const { return expected_inputs_; }
  /// One entry for each output.
  const std::vector<ExpectedConnection>& expected_outputs() const { return expected_outputs_; }
  /// The forward tensors of expected_inputs() and expected_outputs().
  Tensors inputs() const;
  Tensors outputs() const;

  /// The values that the gradient graph needs: {its input, the parent tensor of the forward call}.
  /// Gradients are passed by position; they come first. Error{kUsage} if the call is not of the
  /// forward graph, or if one of those parent tensors was overwritten since, naming the writer.
  TensorMap inputs_dict(const CallSiteInfo& fwd_call) const;
  /// {input of the forward graph: its gradient in the parent} for the outputs that are gradients of
  /// inputs.
  std::unordered_map<Tensor, Tensor> fwd_graph_ins_to_grad_parent_outs(
      const CallSiteInfo& grad_call) const;
  /// {parent tensor given to the forward call: its gradient}. A tensor given to several inputs gets
  /// the sum: adds are appended to the gradient call's parent.
  std::unordered_map<Tensor, Tensor> fwd_parent_ins_to_grad_parent_outs(
      const CallSiteInfo& fwd_call, const CallSiteInfo& grad_call) const;

 private:
  Ir ir_;
  GraphId forward_graph_;
  GraphId graph_;
  std::vector<ExpectedConnection> expected_inputs_;
  std::vector<ExpectedConnection> expected_outputs_;
  size_t first_input_;
};

/// "GradGraphInfo[ graph=… expected_inputs=[…] expected_outputs=[…]]", a line each.
std::string to_string(const GradGraphInfo& info);

/// What to do about a required gradient that no provided gradient reaches.
enum class Unreachable { kError, kZeros };

struct AutodiffOptions {
  /// Tensors of the graph whose gradients are given; absent: its floating-point outputs, without
  /// those that transforms appended.
  std::optional<Tensors> grads_provided;
  /// Tensors of the graph whose gradients are wanted, at least one; absent: its floating-point
  /// inputs.
  std::optional<Tensors> grads_required;
  /// Gradient graphs, by forward graph, to use for called graphs instead of making them.
  std::map<GraphId, GradGraphInfo> called_graphs;
  Unreachable unreachable = Unreachable::kError;
};

/// Reverse-mode differentiation of a graph into a new graph "<name>_bwd" (then "_bwd_1", …).
///
/// Before: `graph` is a subgraph that passes verify().
/// After: the new graph takes one gradient per `grads_provided` (same order,
/// "Gradient___<tensor>"), then the forward values that it reads, by name; its outputs are the
/// gradients of `grads_required`. Forward values that are neither inputs nor outputs were appended
/// to the outputs of `graph`, and to all calls of it. Called graphs and branches of conditionals
/// were differentiated likewise, once each. On an error nothing has changed.
///
/// Errors (kUsage): a required gradient that nothing reaches; a value that was overwritten before
/// its gradient needs it (naming tensor, reader and writer); a gradient through a repeat; tensors
/// of another graph or not floating point.
GradGraphInfo autodiff(Graph& graph, const AutodiffOptions& options = {});

}  // namespace sluice::transforms
