#include "sluice/compiler/rewriter.h"

#include <fmt/format.h>

#include "sluice/base/error.h"
#include "sluice/base/ids/ids.h"

namespace sluice::compiler {

void add_input(Node& node, ValueIndex value, const TensorSpec& spec) {
  node.inputs.push_back(value);
  node.in_specs.push_back(spec);
}

void add_output(Node& node, ValueIndex value, const TensorSpec& spec) {
  node.outputs.push_back(value);
  node.out_specs.push_back(spec);
}

void add_overwrite(Node& node, ValueIndex into, ValueIndex made, const TensorSpec& spec) {
  node.ties.push_back({static_cast<int32_t>(node.outputs.size()), into});
  add_output(node, made, spec);
}

int32_t add_updated(Node& node, ValueIndex argument, ValueIndex made, const TensorSpec& spec) {
  const auto input = static_cast<int32_t>(node.inputs.size());
  node.call()->updated.push_back(input);
  add_input(node, argument, spec);
  add_overwrite(node, argument, made, spec);
  return input;
}

Node node_like(const Node& at) {
  Node node;
  node.origin = at.origin;
  node.provenance = at.provenance;
  node.device = at.device;
  return node;
}

TensorSpec spec_of(const OpStage& part, const std::vector<TensorSpec>& inputs) {
  return part.op->infer(OpView(*part.op, part.attrs, inputs))[0];
}

ValueIndex Rewriter::insert(Node node) {
  for (const ValueIndex v : node.outputs) {
    if (v == kNone) continue;
    if (!maker_.contains(v)) maker_.resize(body_.values.size());
    maker_[v] = body_.nodes.end_id();
  }
  const ValueIndex first = node.outputs.empty() ? kNone : node.outputs[0];
  body_.nodes.push_back(std::move(node));
  return first;
}

void Rewriter::replace_use(ValueIndex from, ValueIndex to) {
  if (!rename_.contains(from)) rename_.resize(body_.values.size());
  rename_[from] = to;
}

void Rewriter::split(const Node& node, std::span<const OpStage> parts,
                     const std::vector<bool>& used) {
  SLUICE_CHECK(node.ties.empty());
  std::vector<bool> needed(parts.size(), false);
  for (size_t p = parts.size(); p-- > 0;) {
    const int32_t output = parts[p].output;
    if (output >= 0 && (used.empty() || at(used, output))) needed[p] = true;
    for (const int32_t i : parts[p].inputs) {
      if (needed[p] && i < 0) at(needed, ~i) = true;
    }
  }
  std::vector<ValueIndex> made(parts.size(), kNone);
  for (size_t p = 0; p < parts.size(); ++p) {
    if (!needed[p]) continue;
    const OpStage& part = parts[p];
    Node own = node_like(node);
    own.def = part.op;
    own.what = Node::Kernel{part.attrs};
    if (part.op->has(Trait::kView)) own.what = Node::View{};
    for (const int32_t i : part.inputs) {
      if (i < 0) {
        add_input(own, at(made, ~i), body_.value(at(made, ~i)).spec);
      } else {
        add_input(own, at(node.inputs, i), at(node.in_specs, i));
      }
    }
    const TensorSpec spec = spec_of(part, own.in_specs);
    if (part.output >= 0) {
      made[p] = at(node.outputs, part.output);
    } else {
      BodyValue value;
      value.tensor = fmt::format("{} of {}", part.op->name, node.where());
      value.spec = spec;
      made[p] = body_.add(std::move(value));
    }
    add_output(own, made[p], spec);
    insert(std::move(own));
  }
}

const Node* Rewriter::maker(ValueIndex value) const {
  if (!maker_.contains(value) || !maker_[value].valid()) return nullptr;
  return &body_.nodes[maker_[value]];
}

ValueIndex Rewriter::current(ValueIndex value) const {
  while (rename_.contains(value) && rename_[value] != kNone) value = rename_[value];
  return value;
}

void Rewriter::rename_inputs(Node& node) const {
  if (rename_.empty()) return;
  for (ValueIndex& v : node.inputs) v = current(v);
  for (Tie& t : node.ties) t.into = current(t.into);
}

void Rewriter::rename_ends() {
  for (ValueIndex& v : body_.results) v = current(v);
  for (BodyParam& p : body_.params) p.out = current(p.out);
  for (auto& [variable, v] : body_.variables) v = current(v);
}

}  // namespace sluice::compiler
