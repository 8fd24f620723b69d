#include "sluice/compiler/analysis/layout_opinions.h"

namespace sluice::compiler {

bool has_own_shape(const Body& body, const Node& node, size_t i) {
  return node.in_specs[i].shape == body.value(node.inputs[i]).spec.shape;
}

bool has_own_shape(const Body& body, const Node& node, const Tie& t) {
  return at(node.out_specs, t.output).shape == body.value(t.into).spec.shape;
}

bool follows_layouts(const Body& body, const Node& node, const Target& target) {
  return has_fused_form(node) && target.fuses_in_all_layouts(fused_op(body, node));
}

const Ids<ValueIndex, LayoutOpinion>& LayoutOpinions::of(BodyId id) {
  const auto found = known_.find(id);
  if (found != known_.end()) return found->second;
  const Body& body = program_.body(id);
  Ids<ValueIndex, LayoutOpinion> opinions(body.values.size());
  for (const Node& node : body.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueIndex v = node.inputs[i];
      if (v != kNone && context_.target(body).has_layouts(body.value(v).spec))
        opinions[v].add(of_use(body, node, i));
    }
  }
  for (const ValueIndex v : body.results) {
    if (v != kNone) opinions[v].refuses = true;
  }
  for (size_t n = body.nodes.size(); n-- > 0;) {
    const Node& node = body.nodes[NodeId(n)];
    for (const Tie& t : node.ties) {
      const ValueIndex out = at(node.outputs, t.output);
      LayoutOpinion& opinion = opinions[t.into];
      opinion.refuses = opinion.refuses || node.is<Node::Transfer>() ||
                        node.is<Node::Collective>() || !has_own_shape(body, node, t);
      if (out != kNone) opinion.add(opinions[out]);
    }
  }
  return known_.emplace(id, std::move(opinions)).first->second;
}

LayoutOpinion LayoutOpinions::of_param(BodyId body, size_t param) {
  return of(body)[program_.body(body).params[param].in];
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
    return {{}, !op.result_like()[i] || !target.fuses_in_all_layouts(op)};
  }
  if (const auto* call = node.call()) {
    if (i < node.carried()) return {{}, true};
    return of_param(call->callee, i);
  }
  if (const auto* branch = node.as<Node::Branch>()) {
    if (i == 0) return {{}, true};
    return i < branch->else_begin() ? of_param(branch->callees[0], i - 1)
                                    : of_param(branch->callees[1], i - branch->else_begin());
  }
  return {{}, true};
}

}  // namespace sluice::compiler
