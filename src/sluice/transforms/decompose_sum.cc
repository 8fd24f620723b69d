#include "sluice/transforms/decompose_sum.h"

#include <algorithm>

#include "sluice/ir/graph_editor.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/transforms/values.h"

namespace sluice::transforms {

void decompose_sum(Graph& graph) {
  std::vector<Op> sums;
  for (const Op& op : graph.ops()) {
    if (op.def == &ops::add_n_def()) sums.push_back(op);
  }
  if (sums.empty()) return;
  GraphEditor editor(graph);
  std::vector<GraphEditor::Placement> placements;
  const OpId first_op = graph.ops().front().id;
  for (const Op& sum : sums) {
    // Index of the op after which an operand has the value that the sum reads; -1 if the operand
    // has this value from the beginning.
    const auto ready = [&](const Operand& o) {
      const OpId writer =
          graph.storage(graph.info(o.tensor).storage).writers[static_cast<size_t>(o.version)].op;
      return writer < 0 ? int64_t{-1} : graph.op_index(writer);
    };
    Tensor partial = graph.handle(sum.inputs[0].tensor);
    if (sum.inputs.size() == 1) {
      editor.rewrite(sum.id, ops::identity_def(), {partial});
      continue;
    }
    int64_t at = ready(sum.inputs[0]);
    for (size_t i = 1; i + 1 < sum.inputs.size(); ++i) {
      at = std::max(at, ready(sum.inputs[i]));
      const OpId anchor = at < 0 ? first_op : graph.ops()[static_cast<size_t>(at)].id;
      {
        GraphEditor::Guise guise(graph, sum);
        partial = ops::add(partial, graph.handle(sum.inputs[i].tensor));
      }
      placements.push_back(
          {graph.ops().back().id, anchor,
           at < 0 ? GraphEditor::Placement::Side::kBefore : GraphEditor::Placement::Side::kAfter});
    }
    editor.rewrite(sum.id, ops::add_def(), {partial, graph.handle(sum.inputs.back().tensor)});
  }
  editor.place(placements);
  verify_transformed(graph);
}

}  // namespace sluice::transforms
