#include "sluice/train/strategies/repeat_last_ops.h"

#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "sluice/ir/call.h"
#include "sluice/ir/graph_editor.h"
#include "sluice/transforms/values.h"

namespace sluice::train {
namespace {

// Storages that ops from `first` on write.
std::set<int32_t> written_storages(const Graph& graph, size_t first) {
  std::set<int32_t> written;
  for (size_t i = first; i < graph.ops().size(); ++i) {
    for (const Operand& o : graph.ops()[i].inputs) {
      if (o.new_version >= 0) written.insert(graph.info(o.tensor).storage);
    }
  }
  return written;
}

}  // namespace

Graph& repeat_last_ops(Graph& graph, size_t first, int64_t trips) {
  require(trips >= 1, "repeat_last_ops: must run at least once, got {}", trips);
  const std::set<int32_t> written = written_storages(graph, first);
  Graph& body = graph.ir().create_empty_graph(graph.name() + "_repeated");
  GraphEditor editor(body);
  std::map<TensorId, Tensor> known;
  TensorMap given;
  const auto operand = [&](TensorId t) {
    Tensor& here = known[t];
    if (here.valid()) return here;
    const TensorInfo& info = graph.info(t);
    if (info.kind == TensorKind::kConstant) return here = editor.share_constant(graph.handle(t));
    const bool by_reference = written.contains(info.storage);
    SLUICE_CHECK(!by_reference || graph.storage(info.storage).root == t);
    here = body.input(info.spec, info.name, by_reference ? Pass::kByReference : Pass::kByValue);
    given.emplace_back(here, graph.handle(t));
    return here;
  };
  std::unordered_set<OpId> moved;
  for (size_t i = first; i < graph.ops().size(); ++i) {
    const Op op = graph.ops()[i];
    moved.insert(op.id);
    const GraphEditor::Guise guise(body, op);
    std::vector<TensorArg> inputs;
    EmitOptions options{.callees = op.callees, .effects = op.effects};
    for (const Operand& o : op.inputs) {
      inputs.emplace_back(operand(o.tensor));
      options.modes.push_back(o.mode);
    }
    for (const TensorId t : op.outputs) {
      options.outputs.push_back(graph.spec(t));
      options.output_names.push_back(graph.info(t).name);
    }
    const Tensors made = body.emit(*op.def, inputs, op.attrs, std::move(options));
    for (size_t k = 0; k < made.size(); ++k) known[op.outputs[k]] = made[k];
  }
  GraphEditor(graph).remove_ops(moved);
  ops::repeat(graph, body, trips, {}, given);
  transforms::verify_transformed(body);
  return body;
}

}  // namespace sluice::train
