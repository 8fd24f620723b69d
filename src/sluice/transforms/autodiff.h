#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sluice/ir/call.h"

namespace sluice::transforms {

enum class Connection {
  kFwd,      ///< The value of a forward tensor.
  kFwdGrad,  ///< The gradient of a forward tensor.
};

/// The meaning of an input or output of a gradient graph.
struct ExpectedConnection {
  Connection type;
  Tensor fwd_tensor;
};

/// Describes how a gradient graph is connected to its forward graph.
class GradGraphInfo {
 public:
  /// `first_input` inputs of the gradient graph precede those in `expected_inputs`.
  GradGraphInfo(Graph& forward_graph, Graph& graph, std::vector<ExpectedConnection> expected_inputs,
                std::vector<ExpectedConnection> expected_outputs, size_t first_input = 0);

  Graph& graph() const { return ir_.graph(graph_); }
  Graph& forward_graph() const { return ir_.graph(forward_graph_); }
  /// Inputs of the gradient graph: gradients first, then forward values. Inputs that other
  /// transforms add, such as accumulators, follow these. In a phase, the row precedes them.
  const std::vector<ExpectedConnection>& expected_inputs() const { return expected_inputs_; }
  /// One entry per output.
  const std::vector<ExpectedConnection>& expected_outputs() const { return expected_outputs_; }
  /// The forward tensors of expected_inputs() and expected_outputs().
  Tensors inputs() const;
  Tensors outputs() const;

  /// Returns the forward values that the gradient graph needs: {its input, the parent tensor of the
  /// forward call}. Gradients are not in the map; pass them by position, before these.
  /// Error{kUsage} if the call is not a call of the forward graph. Error{kUsage} if a returned
  /// parent tensor was overwritten since that call; the message names the writer.
  TensorMap inputs_dict(const CallSiteInfo& fwd_call) const;
  /// Returns {input of the forward graph, its gradient in the parent} for the outputs that are
  /// gradients of inputs.
  std::unordered_map<Tensor, Tensor> fwd_graph_ins_to_grad_parent_outs(
      const CallSiteInfo& grad_call) const;
  /// Returns {parent tensor passed to the forward call, its gradient}. A tensor passed to several
  /// inputs gets the sum of their gradients. The adds are appended to the parent of the gradient
  /// call.
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

/// Formats it as "GradGraphInfo[ graph=… expected_inputs=[…] expected_outputs=[…]]", with one part
/// per line.
std::string to_string(const GradGraphInfo& info);

/// The result for a required gradient that does not depend on a provided gradient: an error or
/// zeros.
enum class Unreachable { kError, kZeros };

/// The values of the iterations of a repeat that its gradient reads.
enum class Iterations {
  kKeep,       ///< Each iteration stores all of them, in tensors of the trip count and their shape.
  kRecompute,  ///< Each iteration stores its carried inputs, and the gradient runs it again.
};

struct AutodiffOptions {
  /// Tensors of the graph whose gradients are inputs of the gradient graph. Absent: its
  /// floating-point outputs, without those that transforms appended.
  std::optional<Tensors> grads_provided = {};
  /// Tensors of the graph whose gradients are computed, at least one. Absent: its floating-point
  /// inputs.
  std::optional<Tensors> grads_required = {};
  /// Existing gradient graphs of called graphs, by forward graph. autodiff() uses them instead of
  /// making new ones.
  std::map<GraphId, GradGraphInfo> called_graphs = {};
  Unreachable unreachable = Unreachable::kError;
  Iterations iterations = Iterations::kKeep;  ///< For all repeats of the graph and its callees.
};

/// Differentiates a graph in reverse mode into a new graph "<name>_bwd" (then "_bwd_1", …).
///
/// Before: `graph` is a subgraph that passes verify().
/// After: the new graph takes one gradient per tensor of `grads_provided`, in the same order
/// ("Gradient___<tensor>"). The forward values that it reads follow, sorted by name. Its outputs
/// are the gradients of `grads_required`. Forward values that are neither inputs nor outputs are
/// appended to the outputs of `graph` and of its calls. Called graphs and branches of conditionals
/// are differentiated too, each once. A repeat becomes a repeat of the gradients of its iterations,
/// in reverse order. The gradient of an invariant input is a sum over the iterations in that order,
/// which the gradient of the same tensor as a carried input follows. The forward repeat stores
/// values of its iterations in tensors that are made before it (Iterations). After an error all
/// graphs are unchanged.
///
/// Error{kUsage} if no provided gradient reaches a required one. Error{kUsage} if a gradient passes
/// through a while_loop, or through a tensor that the iterations of a repeat write by reference.
/// Error{kUsage} if a value is overwritten and its gradient needs the old value; the message names
/// tensor, reader and writer. Error{kUsage} for tensors of another graph and for tensors that are
/// not floating point.
GradGraphInfo autodiff(Graph& graph, const AutodiffOptions& options = {});

/// The value of a function and its gradients.
struct ValueAndGrad {
  Tensor value = {};
  /// One per argument. The handle is empty for an argument that is not floating point.
  Tensors grads = {};
};

/// Calls `graph`, which has one floating-point output of one element, on `inputs` and
/// differentiates it. `inputs` are tensors of the calling graph, one per input of `graph`. The
/// call, the gradient graph and its call are added there. The gradient of an input that the output
/// does not depend on is zeros. Error{kUsage} for another output, and for the errors of ops::call()
/// and autodiff().
ValueAndGrad value_and_grad(Graph& graph, const Tensors& inputs,
                            std::source_location where = std::source_location::current());

/// The quantity that accumulators hold. The formulas are those of an accumulator a, a gradient g
/// and the number k of earlier gradients. They compute in float32 and round once to the
/// accumulator's dtype.
enum class Accumulation {
  kSum,          ///< a + g. There is no counter.
  kMean,         ///< a + g/N for AccumulationOptions::steps N. There is no counter.
  kRunningMean,  ///< (k/(k+1))·a + g/(k+1): the mean since the counter was last set to zero.
};

/// "sum", "mean" or "running_mean".
std::string_view to_string(Accumulation accumulation);

/// Whether each call of the gradient graph adds 1 to the counter of a running mean.
enum class Counter {
  kAdvance,
  kKeep,  ///< The caller does so, once for all gradient graphs that share the counter.
};

struct AccumulationOptions {
  /// As in AutodiffOptions.
  std::optional<Tensors> grads_provided = {};
  /// Tensors whose gradients remain outputs of the gradient graph, in this order.
  Tensors grads_required = {};
  std::map<GraphId, GradGraphInfo> called_graphs = {};
  Unreachable unreachable = Unreachable::kError;
  Iterations iterations = Iterations::kKeep;  ///< As in AutodiffOptions.
  Accumulation accumulation = Accumulation::kRunningMean;
  int64_t steps = 1;                    ///< Gradients of a mean, with kMean only.
  Counter counter = Counter::kAdvance;  ///< With kRunningMean only.
  /// Dtype of each accumulator, in the order of the tensors. Empty: the tensors' dtypes.
  std::vector<DType> dtypes = {};
  /// For each name: groups of replicas whose accumulators hold the same value. Absent: all replicas
  /// are one group.
  std::map<std::string, ReplicaGrouping> replica_groupings = {};
};

/// A by-reference input that the transform added. The caller keeps this state and sets it to zero
/// at first.
struct AddedInput {
  std::string name = {};  ///< "mean_accum_counter", then "accum.<name>".
  TensorSpec spec = {};
  Tensor input = {};
  std::optional<ReplicaGrouping> group = {};
};

struct AccumulationResult {
  GradGraphInfo info;
  std::vector<AddedInput>
      added;  ///< The counter (if any), then one accumulator per tensor, in the order given.
};

/// Runs autodiff(), but accumulates the gradients of `tensors` into state instead of returning
/// them.
///
/// Before: as for autodiff. `names[i]` is the key of `tensors[i]`; an empty list means the tensors'
/// names, sanitised.
/// After: the gradient graph also has the by-reference inputs `mean_accum_counter` (f32, ()) and
/// `accum.<name>` (the tensor's shape). Its outputs are the gradients of `grads_required`. With s
/// the counter, a call computes accum ← s/(s+1)·accum + gradient/(s+1). It does so as soon as a
/// gradient is computed, so that few gradients are in memory at a time. With Counter::kAdvance it
/// computes s ← s + 1 last. To start a new mean, set only the counter to zero. Accumulation has the
/// other formulas. A gradient is rounded to the dtype of its accumulator before it is added.
/// Error{kUsage} as for autodiff, and if `names` or `dtypes` and `tensors` differ in length, if
/// `steps` is below 1, or if a dtype is not floating point.
AccumulationResult autodiff_with_accumulation(Graph& graph, const Tensors& tensors,
                                              const std::vector<std::string>& names = {},
                                              const AccumulationOptions& options = {});

}  // namespace sluice::transforms
