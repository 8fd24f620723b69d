#include "sluice/transforms/inference/fold_batch_norm.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "sluice/ir/graph_editor.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/conv.h"
#include "sluice/ops/normalization.h"
#include "sluice/ops/reshape.h"
#include "sluice/transforms/values.h"

namespace sluice::transforms {
namespace {

/// A conv, an optional op that adds a bias, and a batch norm.
struct Match {
  Op conv;
  std::optional<Op> add;
  Tensor bias;  ///< The conv's bias; empty without `add`.
  Op norm;
};

/// Returns the number of times that ops and outputs of a graph use a storage.
int64_t uses_of(const Graph& graph, StorageId storage) {
  const auto is_it = [&](TensorId t) { return graph.info(t).storage == storage; };
  int64_t uses = std::count_if(graph.output_ids().begin(), graph.output_ids().end(), is_it);
  for (const Op& op : graph.ops()) {
    uses += std::count_if(op.inputs.begin(), op.inputs.end(),
                          [&](const Operand& o) { return is_it(o.tensor); });
  }
  return uses;
}

/// Whether all operands of an op keep the values that it reads.
bool reads_last_versions(const Graph& graph, const Op& op) {
  return std::all_of(op.inputs.begin(), op.inputs.end(), [&](const Operand& o) {
    return o.version == graph.storage(graph.info(o.tensor).storage).version();
  });
}

/// Returns the op that made an operand, if the op has this definition and the operand is the only
/// use of its result. Returns null otherwise.
const Op* only_source(const Graph& graph, const Operand& operand, const OpDef& def) {
  const TensorInfo& info = graph.info(operand.tensor);
  if (!info.producer.valid()) return nullptr;
  const Op& op = graph.op(info.producer);
  const bool found = op.def == &def && uses_of(graph, info.storage) == 1 &&
                     reads_last_versions(graph, op) && graph.storage(info.storage).version() == 0;
  return found ? &op : nullptr;
}

/// Whether a shape that broadcasts to `full` has one element for each channel, axis 1 of `full`.
bool is_along_channels(const Shape& shape, const Shape& full) {
  const int axis = 1 - (full.rank() - shape.rank());
  return axis >= 0 && shape.elements() == full[1] && shape[axis] == full[1];
}

std::optional<Match> match(const Graph& graph, const Op& norm) {
  if (norm.def != &ops::batch_norm_inference_def() || !reads_last_versions(graph, norm))
    return std::nullopt;
  if (const Op* conv = only_source(graph, norm.inputs[0], ops::conv_def()))
    return Match{*conv, std::nullopt, {}, norm};
  const Op* const add = only_source(graph, norm.inputs[0], ops::add_def());
  if (add == nullptr) return std::nullopt;
  const Shape& full = graph.spec(norm.inputs[0].tensor).shape;
  for (const size_t side : {size_t{0}, size_t{1}}) {
    const Op* const conv = only_source(graph, add->inputs[side], ops::conv_def());
    const TensorId bias = add->inputs[1 - side].tensor;
    if (conv != nullptr && graph.spec(add->inputs[side].tensor).shape == full &&
        is_along_channels(graph.spec(bias).shape, full))
      return Match{*conv, *add, graph.handle(bias), norm};
  }
  return std::nullopt;
}

/// Views one value for each channel as a tensor of `dims` axes. Axis `axis` has the channels.
Tensor along(const Tensor& values, int axis, int dims) {
  std::vector<int64_t> shape;
  for (int a = 0; a < dims; ++a) shape.push_back(a == axis ? values.elements() : 1);
  return ops::reshape(values, Shape(std::move(shape)));
}

void fold(Graph& graph, const Match& m) {
  const OpIndex first = graph.ops().end_id();
  const auto operand = [&](const Op& op, size_t i) { return graph.handle(op.inputs[i].tensor); };
  const auto o = from_attrs<ops::BatchNormOptions>(m.norm.attrs);
  Tensor scale, shift, folded;
  {
    const GraphEditor::Guise guise(graph, m.norm);
    const Tensor deviation = ops::sqrt(operand(m.norm, 2) + o.epsilon);
    scale = m.norm.inputs.size() > 3 ? operand(m.norm, 3) / deviation : 1.0 / deviation;
    const Tensor mean = operand(m.norm, 1);
    shift = m.add ? (ops::reshape(m.bias, mean.shape()) - mean) * scale : -mean * scale;
    if (m.norm.inputs.size() > 4) shift = shift + operand(m.norm, 4);
  }
  {
    const GraphEditor::Guise guise(graph, m.conv);
    const Tensor weight = operand(m.conv, 1);
    folded =
        ops::emit(ops::conv_def(), {operand(m.conv, 0), weight * along(scale, 0, weight.rank())},
                  m.conv.attrs)[0];
    shift = along(shift, 1, folded.rank());
  }
  GraphEditor editor(graph);
  editor.rewrite(m.norm.id, ops::add_def(), {folded, shift});
  std::vector<GraphEditor::Placement> placements;
  for (const OpIndex i : IdRange(first, graph.ops().end_id())) {
    placements.push_back({graph.ops()[i].id, m.norm.id, GraphEditor::Placement::Side::kBefore});
  }
  editor.place(placements);
  std::unordered_set<OpId> gone{m.conv.id};
  if (m.add) gone.insert(m.add->id);
  editor.remove_ops(gone);
}

}  // namespace

int fold_batch_norm(Graph& graph) {
  std::vector<OpId> norms;
  for (const Op& op : graph.ops()) {
    if (op.def == &ops::batch_norm_inference_def()) norms.push_back(op.id);
  }
  int count = 0;
  for (const OpId id : norms) {
    const std::optional<Match> found = match(graph, graph.op(id));
    if (!found) continue;
    fold(graph, *found);
    ++count;
  }
  if (count > 0) verify_transformed(graph);
  return count;
}

}  // namespace sluice::transforms
