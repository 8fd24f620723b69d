#include "sluice/transforms/copies/op_copies.h"

#include "sluice/ir/graph_editor.h"

namespace sluice::transforms {

void OpCopies::copy(const Op& op, std::vector<GraphId> callees) {
  const GraphEditor::Guise guise(to_, op);
  std::vector<TensorArg> inputs;
  EmitOptions options{.callees = callees.empty() ? op.callees : std::move(callees),
                      .effects = op.effects};
  for (Effect& e : options.effects) e.order = effects_[{e.kind, e.id}]++;
  for (const Operand& o : op.inputs) {
    inputs.emplace_back((*this)[o.tensor]);
    options.modes.push_back(o.mode);
  }
  for (const TensorId t : op.outputs) {
    options.outputs.push_back(from_.spec(t));
    options.output_names.push_back(from_.info(t).name);
  }
  const Tensors made = to_.emit(*op.def, inputs, op.attrs, std::move(options));
  for (size_t k = 0; k < made.size(); ++k) copies_[op.outputs[k]] = made[k];
}

Tensor OpCopies::operator[](TensorId t) {
  const auto found = copies_.find(t);
  if (found != copies_.end()) return found->second;
  const Tensor captured = capture_(t);
  copies_[t] = captured;
  return captured;
}

}  // namespace sluice::transforms
