#include "sluice/compiler/passes/fusion/share_work.h"

#include <algorithm>

#include "sluice/ops/arithmetic.h"

namespace sluice::compiler {
namespace {

class WorkSharer {
 public:
  WorkSharer(Body& body, const Target& target)
      : body_(body), target_(target), readers_(readers_of(body)), kept_(kept_values(body)) {
    for (const Node& node : body_.nodes) {
      for (const Tie& t : node.ties) kept_[t.into] = true;
    }
  }

  int64_t run() {
    int64_t changed = 0;
    Ids<NodeId, Node> nodes;
    slope_.assign(body_.nodes.size(), kNone);
    for (const NodeId n : body_.nodes.ids()) {
      Node& node = body_.nodes[n];
      if (slope_[n] != kNone) {
        make_product(node, slope_[n]);
      } else if (is_shared(node)) {
        split(std::move(node), nodes);
        ++changed;
        continue;
      }
      nodes.push_back(std::move(node));
    }
    body_.nodes = std::move(nodes);
    return changed;
  }

 private:
  static bool is_plain(const Node& node) {
    return node.is<Node::Kernel>() && node.ties.empty() && node.outputs.size() == 1 &&
           splits_exactly(node.out_specs[0].dtype);
  }

  bool is_shared(const Node& node) const {
    if (!is_plain(node) || !node.def->shared_work) return false;
    const ValueIndex x = node.inputs[0];
    const Shape& shape = node.out_specs[0].shape;
    if (body_.value(x).source != BodyValue::Source::kNode || kept_[x]) return false;
    const std::vector<NodeId>& readers = readers_[x];
    return readers.size() > 1 &&
           std::all_of(readers.begin(), readers.end(),
                       [&](NodeId r) {
                         const Node& reader = body_.nodes[r];
                         return &reader == &node ||
                                (&reader > &node && is_plain(reader) &&
                                 reader.def == node.def->shared_work->gradient &&
                                 reader.inputs[0] == x && reader.inputs[1] != x &&
                                 reader.in_specs[0].shape == shape &&
                                 reader.in_specs[1].shape == shape);
                       }) &&
           target_.fuses(parts(node));
  }

  // The parts of an op as one kernel with operands x, y, slope.
  static FusedOp parts(const Node& node) {
    const SharedWork& shared = *node.def->shared_work;
    const TensorSpec& spec = node.out_specs[0];
    FusedOp op;
    op.operands.assign(3, spec);
    op.layouts.resize(3);
    op.inputs = 1;
    op.stages = {{shared.work, shared.work->options, {0}, -1, spec},
                 {shared.value, shared.value->options, {0, ~0}, 1, spec},
                 {shared.slope, shared.slope->options, {0, ~0}, 2, spec}};
    return op;
  }

  ValueIndex add_value(const Node& node, const OpDef& def) {
    BodyValue value;
    value.tensor = fmt::format("{} of {}", def.name, body_.value(node.outputs[0]).tensor);
    value.spec = node.out_specs[0];
    return body_.add(std::move(value));
  }

  void split(Node node, Ids<NodeId, Node>& nodes) {
    const SharedWork shared = *node.def->shared_work;
    const ValueIndex x = node.inputs[0];
    const ValueIndex work = add_value(node, *shared.work);
    const ValueIndex slope = add_value(node, *shared.slope);
    for (const NodeId r : readers_[x]) slope_[r] = slope;
    const auto push = [&](const OpDef& def, std::vector<ValueIndex> inputs, ValueIndex output) {
      Node part = node;
      part.def = &def;
      part.what = Node::Kernel{def.options};
      part.in_specs.assign(inputs.size(), node.out_specs[0]);
      part.inputs = std::move(inputs);
      part.outputs = {output};
      nodes.push_back(std::move(part));
    };
    push(*shared.work, {x}, work);
    push(*shared.value, {x, work}, node.outputs[0]);
    push(*shared.slope, {x, work}, slope);
    Provenance of_slope = *node.provenance;
    of_slope.op = shared.slope->name;
    nodes.back().provenance = of_slope;
  }

  static void make_product(Node& gradient, ValueIndex slope) {
    gradient.def = &ops::mul_def();
    gradient.what = Node::Kernel{gradient.def->options};
    gradient.inputs = {gradient.inputs[1], slope};
    std::swap(gradient.in_specs[0], gradient.in_specs[1]);
  }

  Body& body_;
  const Target& target_;
  const Ids<ValueIndex, std::vector<NodeId>> readers_;
  Ids<ValueIndex, bool> kept_;     // Needed after the body has ended, or overwritten in it.
  Ids<NodeId, ValueIndex> slope_;  // For each node: derivative for a gradient.
};

}  // namespace

int64_t share_work(Body& body, const Target& target) { return WorkSharer(body, target).run(); }

}  // namespace sluice::compiler
