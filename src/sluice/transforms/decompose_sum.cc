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
    // The op after which an operand has the value that the sum reads; invalid if the operand
    // has this value from the beginning.
    const auto ready = [&](const Operand& o) {
      const OpId writer = graph.storage(graph.info(o.tensor).storage).writers[o.version].op;
      return writer.valid() ? graph.op_index(writer) : OpIndex();
    };
    Tensor partial = graph.handle(sum.inputs[0].tensor);
    if (sum.inputs.size() == 1) {
      editor.rewrite(sum.id, ops::identity_def(), {partial});
      continue;
    }
    OpIndex last = ready(sum.inputs[0]);
    for (size_t i = 1; i + 1 < sum.inputs.size(); ++i) {
      last = std::max(last, ready(sum.inputs[i]));
      const OpId anchor = last.valid() ? graph.ops()[last].id : first_op;
      {
        GraphEditor::Guise guise(graph, sum);
        partial = ops::add(partial, graph.handle(sum.inputs[i].tensor));
      }
      placements.push_back({graph.ops().back().id, anchor,
                            last.valid() ? GraphEditor::Placement::Side::kAfter
                                         : GraphEditor::Placement::Side::kBefore});
    }
    editor.rewrite(sum.id, ops::add_def(), {partial, graph.handle(sum.inputs.back().tensor)});
  }
  editor.place(placements);
  verify_transformed(graph);
}

}  // namespace sluice::transforms
