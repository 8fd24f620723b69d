#pragma once
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice {

/// Named arguments of a call: pairs of an input of the called graph and a tensor of the parent
/// graph.
using TensorMap = std::vector<std::pair<Tensor, Tensor>>;

/// One call (or repeat) of a graph in a parent graph. It reads the graphs at each use, so it
/// includes outputs that transforms append later.
class CallSiteInfo {
 public:
  CallSiteInfo(Graph& parent, OpId op) : parent_(&parent), ir_(parent.ir()), op_(op) {}

  /// The reference is valid until a transform removes the op from its graph.
  const Op& op() const { return parent_->op(op_); }
  Graph& parent() const { return *parent_; }
  /// The called graph; for a repeat, the wrapper graph of the loop.
  Graph& called_graph() const { return ir_.graph(op().callees[0]); }
  /// Returns the parent tensor of an input or output of the called graph; inputs are searched
  /// first. Error{kUsage} if the tensor is neither.
  Tensor graph_to_parent(const Tensor& in_graph) const;
  /// Returns the first input of the called graph that receives a parent tensor. Error{kUsage} if no
  /// input receives it.
  Tensor parent_to_graph(const Tensor& in_parent) const;
  Tensors inputs() const;
  Tensors outputs() const;
  Tensor input(int i) const;
  Tensor output(int i) const;

 private:
  Graph* parent_;
  Ir ir_;
  OpId op_;
};

namespace ops {

/// Calls `graph` in `parent`. The positional arguments `inputs` fill its inputs from the first;
/// `named` has the remaining ones. By-reference inputs are updated. Returns the outputs of the
/// call. Error{kUsage} for too many inputs, an input given twice, a tensor of another graph, or a
/// spec that differs. Error{kUsage} "Not enough inputs have been provided", with a table, for
/// missing inputs.
Tensors call(Graph& parent, Graph& graph, const Tensors& inputs, const TensorMap& named = {},
             std::source_location where = std::source_location::current());
CallSiteInfo call_with_info(Graph& parent, Graph& graph, const Tensors& inputs,
                            const TensorMap& named = {},
                            std::source_location where = std::source_location::current());

struct RepeatOptions {
  /// Input of the repeated graph (a scalar i32) that receives the number of the iteration, from 0.
  Tensor iteration = {};
  /// Input of the repeated graph (a scalar bool, by reference, that the graph writes). An iteration
  /// begins only while it is true, so there may be fewer than `trips`.
  Tensor condition = {};
};

/// Runs `graph` `trips` (>= 0) times. Each iteration receives output k of the previous one as input
/// k; all are replaced at the same time. The other inputs are invariant; if by reference, they
/// accumulate. Returns the carried values after the last iteration.
Tensors repeat(Graph& parent, Graph& graph, int64_t trips, const Tensors& inputs,
               const TensorMap& named = {}, const RepeatOptions& options = {},
               std::source_location where = std::source_location::current());
CallSiteInfo repeat_with_info(Graph& parent, Graph& graph, int64_t trips, const Tensors& inputs,
                              const TensorMap& named = {}, const RepeatOptions& options = {},
                              std::source_location where = std::source_location::current());

/// Runs `then_graph` if the scalar bool `condition` holds, `else_graph` otherwise. Both must have
/// the same number of outputs, with the same specs. Error{kUsage} for by-reference inputs and for
/// the errors of call().
Tensors conditional(Graph& parent, const Tensor& condition, Graph& then_graph, Graph& else_graph,
                    const Tensors& then_inputs, const Tensors& else_inputs,
                    std::source_location where = std::source_location::current());

}  // namespace ops
}  // namespace sluice
