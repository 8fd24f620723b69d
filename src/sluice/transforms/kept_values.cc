#include "sluice/transforms/kept_values.h"

#include <algorithm>
#include <utility>

#include "sluice/base/provenance.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/reshape.h"

namespace sluice::transforms {
namespace {

using Side = GraphEditor::Placement::Side;

// Returns the version of a tensor's storage just before or after an op. The op must have the tensor
// among its operands.
Version version_at(const Graph& graph, const Op& op, Side side, TensorId t) {
  const StorageId storage = graph.info(t).storage;
  for (const Operand& o : op.inputs) {
    if (graph.info(o.tensor).storage != storage) continue;
    return side == Side::kAfter && o.new_version.valid() ? o.new_version : o.version;
  }
  return Version(0);
}

bool overwrites(const Op& op, const Graph& graph, TensorId t) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const Operand& o) {
    return o.new_version.valid() && graph.info(o.tensor).storage == graph.info(t).storage;
  });
}

}  // namespace

Tensor in_shape(const Tensor& t, const Shape& shape) {
  return t.shape() == shape ? t : ops::reshape(t, shape);
}

KeptValues::KeptValues(Graph& forward, Graph& gradient)
    : forward_(forward),
      gradient_(gradient),
      first_op_(GraphEditor::next_op(forward.ir())),
      first_tensor_(forward.tensors().end_id()) {
  for (const Tensor& t : forward.original_outputs()) outputs_.insert(t.id());
}

// Constants and unchanged by-value inputs do not need an extra output. Nor does a by-reference
// input whose last value is this one.
bool KeptValues::is_kept_free(TensorId handle, Version version) const {
  const Storage& storage = forward_.storage(forward_.info(handle).storage);
  const TensorInfo& root = forward_.info(storage.root);
  if (root.kind == TensorKind::kConstant) return true;
  if (root.kind != TensorKind::kInput) return false;
  const VersionRange range = same_contents(forward_, forward_.info(handle).storage, version);
  return root.pass == Pass::kByValue ? range.first == 0 : range.last == storage.version();
}

const Op* KeptValues::view_that_made(TensorId handle, Version version) const {
  const TensorId root = canonical(handle, version);
  if (same_contents(forward_, forward_.info(handle).storage, version).first != 0 ||
      layout_of(forward_, handle) == Layout::kPartial || outputs_.contains(root))
    return nullptr;
  const OpId producer = forward_.info(root).producer;
  if (!producer.valid() || producer >= first_op_) return nullptr;
  const Op& op = forward_.op(producer);
  const bool view = op.def->has(Trait::kView) && op.inputs.size() == 1 &&
                    forward_.spec(op.inputs[0].tensor).dtype == forward_.spec(root).dtype;
  return view && is_available(op.inputs[0].tensor, op.inputs[0].version) ? &op : nullptr;
}

bool KeptValues::is_available(TensorId handle, Version version) const {
  return is_kept_free(handle, version) ||
         same_contents(forward_, forward_.info(handle).storage, version).last ==
             forward_.storage(forward_.info(handle).storage).version() ||
         view_that_made(handle, version) != nullptr;
}

// Returns the handle under which a whole value is kept. It does not depend on the handle that is
// read.
TensorId KeptValues::canonical(TensorId handle, Version version) const {
  const Storage& storage = forward_.storage(forward_.info(handle).storage);
  const VersionRange range = same_contents(forward_, forward_.info(handle).storage, version);
  const TensorId written = storage.writers[range.first].handle;
  return written.valid() && layout_of(forward_, written) == Layout::kWhole ? written : storage.root;
}

Tensor KeptValues::get(TensorId handle, Version version, const Op& reader) {
  version = same_contents(forward_, forward_.info(handle).storage, version).last;
  const auto key = std::pair(handle, version);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const Storage& storage = forward_.storage(forward_.info(handle).storage);
  const Shape shape = forward_.spec(handle).shape;
  Tensor result;
  if (is_kept_free(handle, version)) {
    const auto root_key = std::pair(storage.root, version);
    if (!known_.contains(root_key)) {
      const bool constant = forward_.info(storage.root).kind == TensorKind::kConstant;
      known_[root_key] = constant
                             ? GraphEditor(gradient_).share_constant(forward_.handle(storage.root))
                             : link(storage.root, version, reader);
    }
    result = view_from_root(handle, known_.at(root_key), version, reader);
  } else if (const Op* view = view_that_made(handle, version)) {
    const Operand from = view->inputs[0];
    result = in_shape(get(from.tensor, from.version, reader), shape);
  } else if (version + 1 <= storage.version() &&
             storage.writers[Version(version + 1)].op == reader.id) {
    // The gradient of this in-place op reads the value that the op overwrites. A copy is kept, as
    // for the out-of-place form.
    result = compute(reader, [&](const Tensors&, const Tensors&) {
      return ops::identity(forward_.handle(handle));
    });
  } else if (layout_of(forward_, handle) == Layout::kPartial) {
    result = link(handle, version, reader);
  } else {
    result = in_shape(link(canonical(handle, version), version, reader), shape);
  }
  known_[key] = result;
  return result;
}

Tensor KeptValues::link(TensorId handle, Version version, const Op& reader) {
  const auto [found, fresh] = link_of_.try_emplace({handle, version}, links_.size());
  if (fresh) {
    const TensorInfo& info = forward_.info(handle);
    const Storage& storage = forward_.storage(info.storage);
    const bool available = is_kept_free(handle, version) || version == storage.version();
    Link link;
    link.handle = handle;
    link.input = gradient_.input(info.spec, info.name);
    link.overwriter = available ? OpId() : storage.writers[Version(version + 1)].op;
    link.needs_copy = info.kind == TensorKind::kInput && !is_kept_free(handle, version);
    link.reader = fmt::format("{} ({})", reader.label(), reader.provenance->line);
    links_.push_back(std::move(link));
  }
  return links_[found->second].input;
}

// Applies the views between a root and one of its handles to `root`, a tensor of the gradient
// graph.
Tensor KeptValues::view_from_root(TensorId handle, const Tensor& root, Version version,
                                  const Op& reader) {
  if (layout_of(forward_, handle) == Layout::kWhole)
    return in_shape(root, forward_.spec(handle).shape);
  const AliasStep step = alias_step(forward_, handle);
  const Op op = *step.op;
  const Tensor base = view_from_root(at(op.inputs, step.input).tensor, root, version, reader);
  if (step.writes) return base;
  std::vector<TensorArg> operands;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    operands.emplace_back(std::cmp_equal(i, step.input)
                              ? base
                              : get(op.inputs[i].tensor, op.inputs[i].version, reader));
  }
  return at(gradient_.emit(*op.def, operands, op.attrs), step.output);
}

Tensor KeptValues::compute(const Op& op, const Function& f) {
  Tensors inputs;
  for (const Operand& o : op.inputs) inputs.push_back(forward_.handle(o.tensor));
  Tensors outputs;
  for (const TensorId t : op.outputs) outputs.push_back(forward_.handle(t));
  const OpIndex first = forward_.ops().end_id();
  Tensor made;
  {
    GraphEditor::Guise guise(forward_, op);
    made = f(inputs, outputs);
  }
  bool in_place = false;  // Reads the value that the op overwrites.
  bool after = false;
  for (const OpIndex i : IdRange(first, forward_.ops().end_id())) {
    for (const Operand& o : forward_.ops()[i].inputs) {
      SLUICE_CHECK(o.mode == Mode::kRead);
      const bool output =
          std::find(op.outputs.begin(), op.outputs.end(), o.tensor) != op.outputs.end();
      const bool input = std::any_of(op.inputs.begin(), op.inputs.end(),
                                     [&](const Operand& own) { return own.tensor == o.tensor; });
      after |= output;
      in_place |= input && overwrites(op, forward_, o.tensor);
    }
  }
  require(!(after && in_place),
          "autodiff: the gradient of {} ({}) needs its operand both before and after it is written",
          op.label(), op.provenance->line);
  const Side side = in_place ? Side::kBefore : Side::kAfter;
  for (const OpIndex i : IdRange(first, forward_.ops().end_id())) {
    inserted_.push_back({forward_.ops()[i].id, op.id, side});
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (made == inputs[i]) return get(made.id(), op.inputs[i].version, op);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (made == outputs[i]) return get(made.id(), value_made(forward_, op, i).version, op);
  }
  return link(equivalent(made.id(), op), Version(0), op);
}

bool KeptValues::same_value(const std::pair<TensorId, Version>& a,
                            const std::pair<TensorId, Version>& b) const {
  if (a == b) return true;
  const auto& x = forward_.info(a.first).constant;
  const auto& y = forward_.info(b.first).constant;
  return x != nullptr && y != nullptr && x->same_bits(*y);
}

// Returns an existing forward tensor with the value of a tensor that was just added, if there is
// one. So differentiating a graph again does not add ops.
TensorId KeptValues::equivalent(TensorId made, const Op& anchor) const {
  const auto added = std::find_if(
      inserted_.begin(), inserted_.end(),
      [&](const GraphEditor::Placement& p) { return p.op == forward_.info(made).producer; });
  if (added == inserted_.end()) return made;
  const Op& op = forward_.op(added->op);
  std::vector<std::pair<TensorId, Version>> operands;
  for (const Operand& o : op.inputs) {
    const TensorId t = equivalent(o.tensor, anchor);
    operands.emplace_back(t, version_at(forward_, anchor, added->side, t));
  }
  for (const Op& other : forward_.ops()) {
    if (other.id >= first_op_) continue;
    if (other.def != op.def || other.inputs.size() != operands.size() || !other.effects.empty() ||
        other.attrs != op.attrs) {
      continue;
    }
    bool same = true;
    for (size_t i = 0; i < operands.size() && same; ++i) {
      const Operand& o = other.inputs[i];
      same = o.mode == Mode::kRead && same_value(operands[i], {o.tensor, o.version});
    }
    const TensorId t = at(other.outputs, forward_.info(made).output);
    if (same && forward_.storage(forward_.info(t).storage).version() == 0) return t;
  }
  return made;
}

// Returns a tensor with the last contents of a handle's storage: an existing copy or a new one.
TensorId KeptValues::final_copy(TensorId handle) {
  const Version version = forward_.storage(forward_.info(handle).storage).version();
  for (const Op& op : forward_.ops()) {
    if (op.def == &ops::identity_def() && op.inputs[0].tensor == handle &&
        op.inputs[0].version == version &&
        forward_.storage(forward_.info(op.outputs[0]).storage).version() == 0) {
      return op.outputs[0];
    }
  }
  return ops::identity(forward_.handle(handle)).id();
}

std::string KeptValues::overwritten(const Link& link) const {
  const Op& writer = forward_.op(link.overwriter);
  return fmt::format(
      "autodiff of graph {}: the gradient of {} needs tensor '{}', but {} ({}) overwrites it; use "
      "an operator that does "
      "not write in place",
      forward_.name(), link.reader, forward_.info(link.handle).name, writer.label(),
      writer.provenance->line);
}

std::vector<KeptValues::Kept> KeptValues::finish(Keep keep) {
  std::unordered_set<TensorId> read;
  for (const Op& op : gradient_.ops()) {
    for (const Operand& o : op.inputs) read.insert(o.tensor);
  }
  for (const TensorId t : gradient_.output_ids()) read.insert(t);
  std::erase_if(links_, [&](const Link& link) { return !read.contains(link.input.id()); });
  for (const Link& link : links_) {
    if (link.overwriter.valid()) throw Error(ErrorKind::kUsage, overwritten(link));
  }

  std::unordered_set<TensorId> needed;
  for (const Link& link : links_) needed.insert(link.handle);
  std::unordered_set<OpId> unneeded;
  for (size_t i = inserted_.size(); i-- > 0;) {
    const Op& op = forward_.op(inserted_[i].op);
    const bool wanted = std::any_of(op.outputs.begin(), op.outputs.end(),
                                    [&](TensorId t) { return needed.contains(t); });
    if (!wanted) unneeded.insert(op.id);
    for (const Operand& o : op.inputs) {
      if (wanted) needed.insert(o.tensor);
    }
  }
  GraphEditor editor(forward_);
  editor.remove_ops(unneeded);
  std::erase_if(inserted_,
                [&](const GraphEditor::Placement& p) { return unneeded.contains(p.op); });
  editor.place(inserted_);
  for (Link& link : links_) {
    if (link.needs_copy) link.handle = final_copy(link.handle);
  }
  const Ids<TensorId, TensorId> moved = editor.compact(first_tensor_);
  for (Link& link : links_) link.handle = moved[link.handle];

  std::vector<Kept> kept;
  for (const Link& link : links_) kept.push_back({forward_.handle(link.handle), link.input});
  std::sort(kept.begin(), kept.end(),
            [](const Kept& a, const Kept& b) { return a.forward.name() < b.forward.name(); });
  if (keep == Keep::kInside) return kept;
  Tensors outputs;
  const std::unordered_set<TensorId> there(forward_.output_ids().begin(),
                                           forward_.output_ids().end());
  for (const Kept& k : kept) {
    const bool input = forward_.info(k.forward).kind == TensorKind::kInput;
    if (!input && !there.contains(k.forward.id())) outputs.push_back(k.forward);
  }
  editor.append_outputs(outputs);
  return kept;
}

}  // namespace sluice::transforms
