#include "sluice/compiler/body.h"

#include <fmt/format.h>

#include "sluice/base/error.h"

namespace sluice::compiler {

Node::What::What() = default;
Node::What::What(const What& other) = default;
Node::What::What(What&& other) noexcept = default;
Node::What& Node::What::operator=(const What& other) = default;
Node::What& Node::What::operator=(What&& other) noexcept = default;
Node::What::~What() = default;
bool operator==(const Node::What& a, const Node::What& b) {
  return static_cast<const Node::What::variant&>(a) == static_cast<const Node::What::variant&>(b);
}

std::vector<Rotation> rotations_of(const Node::Loop& loop) {
  const auto count = static_cast<size_t>(loop.carried);
  // For each carried value: the one that receives its value.
  std::vector<int32_t> older(count, -1);
  for (size_t k = 0; k < loop.rotates.size(); ++k) {
    if (loop.rotates[k] >= 0) at(older, loop.rotates[k]) = static_cast<int32_t>(k);
  }
  std::vector<Rotation> rotations;
  std::vector<bool> taken(count, false);
  const auto add = [&](int32_t newest, bool has_result) {
    Rotation& r = rotations.emplace_back();
    for (int32_t k = newest; k >= 0 && !at(taken, k); k = at(older, k)) {
      at(taken, k) = true;
      r.carried.push_back(k);
    }
    r.slots = static_cast<int32_t>(r.carried.size()) + (has_result ? 1 : 0);
  };
  for (int32_t k = 0; k < loop.carried; ++k) {
    if (loop.returns_result(k)) add(k, true);
  }
  for (int32_t k = 0; k < loop.carried; ++k) {
    if (!at(taken, k)) add(k, false);
  }
  return rotations;
}

Node make_copy(Body& body, ValueIndex from, const std::string& suffix, const Node& at) {
  BodyValue copy = body.value(from);
  copy.tensor += suffix;
  copy.source = BodyValue::Source::kNode;
  copy.index = -1;
  Node node;
  node.what = Node::Copy{};
  node.inputs = {from};
  node.in_specs = {copy.spec};
  node.out_specs = {copy.spec};
  node.outputs = {body.add(std::move(copy))};
  node.origin = at.origin;
  node.provenance = at.provenance;
  node.device = at.device;
  return node;
}

FusedOp fused_op(const Body& body, const Node& node) {
  FusedOp op;
  op.inputs = static_cast<int32_t>(node.inputs.size());
  op.operands.reserve(node.in_specs.size() + node.out_specs.size());
  op.operands.insert(op.operands.end(), node.in_specs.begin(), node.in_specs.end());
  op.operands.insert(op.operands.end(), node.out_specs.begin(), node.out_specs.end());
  op.layouts.reserve(node.inputs.size() + node.outputs.size());
  for (const ValueIndex v : node.inputs) op.layouts.push_back(body.value(v).layout);
  for (const ValueIndex v : node.outputs) op.layouts.push_back(body.value(v).layout);
  const Node::Kernel& kernel = *node.as<Node::Kernel>();
  op.stages = kernel.stages;
  if (!op.stages.empty()) return op;
  SLUICE_CHECK(node.outputs.size() == 1);
  OpStage& stage = op.stages.emplace_back();
  stage.op = node.def;
  stage.attrs = kernel.attrs;
  for (int32_t i = 0; i < op.inputs; ++i) stage.inputs.push_back(i);
  stage.output = op.inputs;
  stage.spec = node.out_specs[0];
  return op;
}

bool has_fused_form(const Node& node) {
  return node.is<Node::Kernel>() && (node.has_stages() || node.outputs.size() == 1);
}

std::string name_of(const Node& node) {
  if (!node.has_stages()) return node.def == nullptr ? "op" : node.def->type;
  std::string name;
  for (const OpStage& stage : node.as<Node::Kernel>()->stages)
    name += (name.empty() ? "" : "+") + stage.op->type;
  return name;
}

Ids<ValueIndex, bool> kept_values(const Body& body) {
  Ids<ValueIndex, bool> kept(body.values.size());
  const auto keep = [&](ValueIndex v) {
    if (v != kNone) kept[v] = true;
  };
  for (const ValueIndex v : body.results) keep(v);
  for (const BodyParam& p : body.params) keep(p.out);
  for (const auto& [variable, v] : body.variables) keep(v);
  return kept;
}

Ids<NodeId, std::vector<bool>> used_outputs(const Body& body) {
  Ids<ValueIndex, bool> used = kept_values(body);
  for (const Node& node : body.nodes) {
    for (const ValueIndex v : node.inputs) {
      if (v != kNone) used[v] = true;
    }
    for (const Tie& t : node.ties) used[t.into] = true;
  }
  Ids<NodeId, std::vector<bool>> result;
  for (const Node& node : body.nodes) {
    std::vector<bool>& mask = result.emplace_back();
    for (const ValueIndex v : node.outputs) mask.push_back(v != kNone && used[v]);
  }
  return result;
}

Ids<ValueIndex, std::vector<NodeId>> readers_of(const Body& body) {
  Ids<ValueIndex, std::vector<NodeId>> readers(body.values.size());
  for (const NodeId n : body.nodes.ids()) {
    for (const ValueIndex v : body.nodes[n].inputs) {
      if (v != kNone) readers[v].push_back(n);
    }
  }
  return readers;
}

}  // namespace sluice::compiler
