#include "sluice/compiler/analysis/layout_opinions.h"

namespace sluice::compiler {

bool has_own_shape(const Body& body, const Node& node, size_t i) {
  return node.in_specs[i].shape == body.value(node.inputs[i]).spec.shape;
}

bool has_own_shape(const Body& body, const Node& node, const Tie& t) {
  return node.out_specs[static_cast<size_t>(t.output)].shape == body.value(t.into).spec.shape;
}

bool runs_on_panels(const Body& body, const Node& node, const Target& target) {
  return has_fused_form(node) && target.fuses(fused_op(body, node).with_layout(kSomePanels));
}

const std::vector<LayoutOpinion>& LayoutOpinions::of(BodyId id) {
  const auto found = known_.find(id);
  if (found != known_.end()) return found->second;
  const Body& body = program_.body(id);
  std::vector<LayoutOpinion> opinions(body.values.size());
  for (const Node& node : body.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueIndex v = node.inputs[i];
      if (v != kNone && is_matrix(body.value(v).spec))
        opinions[static_cast<size_t>(v)].add(of_use(body, node, i));
    }
  }
  for (const ValueIndex v : body.results) {
    if (v != kNone) opinions[static_cast<size_t>(v)].refuses = true;
  }
  for (size_t n = body.nodes.size(); n-- > 0;) {
    const Node& node = body.nodes[n];
    for (const Tie& t : node.ties) {
      const ValueIndex out = node.outputs[static_cast<size_t>(t.output)];
      LayoutOpinion& opinion = opinions[static_cast<size_t>(t.into)];
      opinion.refuses = opinion.refuses || node.is<Node::Transfer>() ||
                        node.is<Node::Collective>() || !has_own_shape(body, node, t);
      if (out != kNone) opinion.add(opinions[static_cast<size_t>(out)]);
    }
  }
  return known_.emplace(id, std::move(opinions)).first->second;
}

LayoutOpinion LayoutOpinions::of_param(BodyId body, size_t param) {
  const ValueIndex in = program_.body(body).params[param].in;
  return of(body)[static_cast<size_t>(in)];
}

LayoutOpinion LayoutOpinions::of_use(const Body& body, const Node& node, size_t i) {
  if (!has_own_shape(body, node, i)) return {{}, true};
  if (node.is<Node::Copy>()) return {{}, node.in_specs[0].shape != node.out_specs[0].shape};
  if (node.is<Node::Kernel>()) {
    if (!has_fused_form(node)) return {{}, true};
    const FusedOp op = fused_op(body, node);
    const Target& target = context_.target(body);
    const Layout wish = target.preferred_layout(op, static_cast<int>(i));
    if (wish != Layout{}) return {wish, false};
    // The width is the wish of another use; any shows whether the op can.
    return {{}, !op.result_like()[i] || !target.fuses(op.with_layout(kSomePanels))};
  }
  if (const auto* call = node.call()) {
    if (static_cast<int32_t>(i) < node.carried()) return {{}, true};
    return of_param(call->callee, i);
  }
  if (const auto* branch = node.as<Node::Branch>()) {
    if (i == 0) return {{}, true};
    const auto middle = static_cast<size_t>(branch->then_inputs) + 1;
    return i < middle ? of_param(branch->callees[0], i - 1)
                      : of_param(branch->callees[1], i - middle);
  }
  return {{}, true};
}

}  // namespace sluice::compiler
