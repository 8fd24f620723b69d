#include "sluice/transforms/loops/repeat_last_ops.h"

#include <set>
#include <unordered_set>

#include "sluice/ir/call.h"
#include "sluice/ir/graph_editor.h"
#include "sluice/transforms/copies/op_copies.h"
#include "sluice/transforms/values.h"

namespace sluice::transforms {
namespace {

// Copies the last ops of a graph into the body of a loop.
class LoopBuilder {
 public:
  LoopBuilder(Graph& graph, OpIndex first)
      : graph_(graph),
        first_(first),
        body_(graph.ir().create_empty_graph(graph.name() + "_repeated")),
        copies_(graph, body_, [this](TensorId t) { return capture(t); }) {
    for (const OpIndex i : IdRange(first, graph.ops().end_id())) {
      for (const Operand& o : graph.ops()[i].inputs) {
        if (o.new_version.valid()) written_.insert(graph.info(o.tensor).storage);
      }
    }
  }

  Tensors build(int64_t trips, const std::vector<CarriedValue>& carried, const Tensor& condition,
                const std::source_location& where) {
    std::unordered_set<OpId> last;
    Tensors inputs;
    for (const CarriedValue& v : carried) {
      const TensorInfo& before = graph_.info(v.before);
      copies_.set(v.before.id(), body_.input(before.spec, graph_.info(v.first).name));
      last.insert(before.producer);
      inputs.push_back(v.first);
    }
    for (OpIndex i = first_; i < graph_.ops().end_id(); ++i) {
      if (last.insert(graph_.ops()[i].id).second) copies_.copy(Op(graph_.ops()[i]));
    }
    for (const CarriedValue& v : carried) body_.add_output(copies_[v.after.id()]);
    GraphEditor(graph_).remove_ops(last);
    ops::RepeatOptions options;
    if (condition.valid()) options.condition = copies_[condition.id()];
    const Tensors results = ops::repeat(graph_, body_, trips, inputs, captured_, options, where);
    verify_transformed(body_);
    return results;
  }

 private:
  // Brings a tensor that was made before the loop into the body.
  Tensor capture(TensorId t) {
    const TensorInfo& info = graph_.info(t);
    if (info.kind == TensorKind::kConstant)
      return GraphEditor(body_).share_constant(graph_.handle(t));
    const bool by_reference = written_.contains(info.storage);
    if (by_reference && graph_.storage(info.storage).root != t) return name_again(t);
    const Tensor input =
        body_.input(info.spec, info.name, by_reference ? Pass::kByReference : Pass::kByValue);
    captured_.emplace_back(input, graph_.handle(t));
    return input;
  }

  // Handles a view of memory that the body writes. The memory is one input of the body, and the
  // body has its own copies of the view ops.
  Tensor name_again(TensorId t) {
    const AliasStep step = alias_step(graph_, t);
    SLUICE_CHECK(step.op != nullptr);
    if (step.writes) return copies_[at(step.op->inputs, step.input).tensor];
    const Op op = *step.op;
    const GraphEditor::Guise guise(body_, op);
    std::vector<TensorArg> inputs;
    for (const Operand& o : op.inputs) inputs.emplace_back(copies_[o.tensor]);
    return at(body_.emit(*op.def, inputs, op.attrs, {.name = graph_.info(t).name}), step.output);
  }

  Graph& graph_;
  const OpIndex first_;
  Graph& body_;
  std::set<int32_t> written_;  // Storages of the graph.
  OpCopies copies_;
  TensorMap captured_;
};

}  // namespace

Tensors repeat_last_ops(Graph& graph, OpIndex first, int64_t trips,
                        const std::vector<CarriedValue>& carried, const Tensor& condition,
                        std::source_location where) {
  require(trips >= 1, "repeat_last_ops: must run at least once, got {}", trips);
  return LoopBuilder(graph, first).build(trips, carried, condition, where);
}

}  // namespace sluice::transforms
