#pragma once
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice {

/// Graph inputs by the parent tensor they are given, beside positional arguments.
using TensorMap = std::vector<std::pair<Tensor, Tensor>>;

/// One call (or repeat) of a graph in a parent graph. Live: it shows outputs that transforms append later.
class CallSiteInfo {
 public:
  CallSiteInfo(Graph& parent, OpId op) : parent_(&parent), ir_(parent.ir()), op_(op) {}

  const Op& op() const { return parent_->op(op_); }
  Graph& parent() const { return *parent_; }
  /// The called graph; of a repeat, the loop's wrapper.
  Graph& called_graph() const { return ir_.graph(op().callees[0]); }
  /// Parent tensor of an input or output of the called graph, inputs first; Error{kUsage} if it is neither.
  Tensor graph_to_parent(const Tensor& in_graph) const;
  /// The called graph's input of a parent tensor: its first occurrence; Error{kUsage} if there is none.
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

/// Calls `graph` in `parent`: positional arguments fill its inputs from the first, `named` gives the others by input
/// tensor. By-reference inputs are updated. Errors (kUsage): too many or missing inputs ("Not enough inputs have been
/// provided", with a table), one given twice, a tensor of another graph, a spec that differs.
Tensors call(Graph& parent, Graph& graph, const Tensors& inputs, const TensorMap& named = {},
             std::source_location where = std::source_location::current());
CallSiteInfo call_with_info(Graph& parent, Graph& graph, const Tensors& inputs,
                            const TensorMap& named = {},
                            std::source_location where = std::source_location::current());

struct RepeatOptions {
  /// Input of the repeated graph (a scalar i32) that receives the iteration, from 0.
  Tensor iteration;
};

/// Runs `graph` `trips` (>= 0) times. Its k-th output is the k-th input of the next iteration, all at once; the other
/// inputs are invariant, or accumulate if by reference. Returns the carried values after the last iteration.
Tensors repeat(Graph& parent, Graph& graph, int64_t trips, const Tensors& inputs,
               const TensorMap& named = {}, const RepeatOptions& options = {},
               std::source_location where = std::source_location::current());
CallSiteInfo repeat_with_info(Graph& parent, Graph& graph, int64_t trips, const Tensors& inputs,
                              const TensorMap& named = {}, const RepeatOptions& options = {},
                              std::source_location where = std::source_location::current());

/// Runs `then_graph` if the scalar bool `condition` holds, `else_graph` otherwise. As many outputs of the same specs;
/// by-reference inputs are refused (Error{kUsage}).
Tensors conditional(Graph& parent, const Tensor& condition, Graph& then_graph, Graph& else_graph,
                    const Tensors& then_inputs, const Tensors& else_inputs,
                    std::source_location where = std::source_location::current());

}  // namespace ops
}  // namespace sluice
