#include "sluice/compiler/passes/fusion/conversions.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sluice/compiler/analysis/layout_opinions.h"

namespace sluice::compiler {
namespace {

class Converter {
 public:
  Converter(Body& body, const Program& program, const Target& target)
      : body_(body), program_(program), target_(target) {}

  int64_t run() {
    find_readers();
    find_what_needs_rows();
    Ids<NodeId, Node> nodes = std::move(body_.nodes);
    for (Node& node : nodes) visit(node);
    for (ValueIndex& v : body_.results) {
      if (v == kNone || layout(v) == Layout{}) continue;
      Node at;
      at.device = body_.device;
      at.provenance = Provenance{.line = "result of " + body_.name};
      v = converted(v, {}, at);
    }
    body_.nodes = std::move(out_);
    return conversions_;
  }

 private:
  Layout& layout(ValueIndex v) { return body_.values[v].layout; }

  void find_readers() {
    readers_.resize(body_.values.size());
    for (const Node& node : body_.nodes) {
      for (const ValueIndex v : node.inputs) {
        if (v != kNone) readers_[v].push_back(&node);
      }
    }
  }

  // Marks the values that must be row-major because a node that overwrites them does not run on
  // panels. All results of a node have the same layout.
  void find_what_needs_rows() {
    needs_rows_.assign(body_.values.size(), false);
    for (size_t n = body_.nodes.size(); n-- > 0;) {
      const Node& node = body_.nodes[NodeId(n)];
      for (const Tie& t : node.ties) {
        // The values that several results overwrite may have different layouts.
        const bool on_panels = node.ties.size() == 1 && has_own_shape(body_, node, t) &&
                               (node.is<Node::Copy>() || follows_layouts(body_, node, target_)) &&
                               !makes_what_needs_rows(node);
        if (!on_panels) needs_rows_[t.into] = true;
      }
    }
  }

  bool makes_what_needs_rows(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueIndex v) { return v != kNone && needs_rows_[v]; });
  }

  // Returns `v` in layout `to`. All readers share one conversion.
  ValueIndex converted(ValueIndex v, const Layout& to, const Node& at) {
    const std::pair key(v, to);
    const auto known = converted_.find(key);
    if (known != converted_.end()) return known->second;
    Node node = make_copy(body_, v, "'" + to_string(to), at);
    const ValueIndex made = node.outputs[0];
    layout(made) = to;
    out_.push_back(std::move(node));
    converted_.emplace(key, made);
    ++conversions_;
    return made;
  }

  void need(Node& node, size_t input, const Layout& wanted) {
    ValueIndex& v = node.inputs[input];
    if (v != kNone && layout(v) != wanted) v = converted(v, wanted, node);
  }

  void visit(Node& node) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNone && !has_own_shape(body_, node, i)) need(node, i, {});
    }
    if (node.is<Node::Kernel>()) {
      if (!has_fused_form(node) || !fits_kernel(node)) require_rows(node);
    } else if (has_callees(node)) {
      for (size_t i = 0; i < node.inputs.size(); ++i) need(node, i, layout_of_param(node, i));
    } else if (node.is<Node::Collective>() && !node.ties.empty() &&
               layout(node.ties[0].into) != Layout{}) {
      return visit_apart(node);
    } else if (!converts(node)) {
      require_rows(node);
    }
    for (const Tie& t : node.ties) {
      const ValueIndex out = at(node.outputs, t.output);
      if (out == kNone) continue;
      if (node.is<Node::Kernel>()) {
        if (layout(out) != layout(t.into)) {
          fail(ErrorKind::kInternal,
               "{} made at {}: its result is {}, but the value that it overwrites is {}",
               name_of(node), node.where(), to_string(layout(out)), to_string(layout(t.into)));
        }
      } else {
        layout(out) = layout(t.into);
      }
    }
    out_.push_back(std::move(node));
  }

  // Whether a node is a copy that reads any layout. A copy that changes the shape reads row-major
  // values only.
  static bool converts(const Node& node) {
    return node.is<Node::Copy>() && node.in_specs[0].shape == node.out_specs[0].shape;
  }

  // Splits a collective that updates panels. The collective outputs a row-major value, and a copy
  // writes this value over the panels.
  void visit_apart(Node& node) {
    Node copy;
    copy.what = Node::Copy{};
    copy.origin = node.origin;
    copy.provenance = node.provenance;
    copy.device = node.device;
    copy.out_specs = node.out_specs;
    copy.outputs = node.outputs;
    copy.ties = std::move(node.ties);
    BodyValue rows = body_.value(node.outputs[0]);
    rows.tensor += "'row";
    node.outputs = {body_.add(std::move(rows))};
    node.ties.clear();
    copy.inputs = node.outputs;
    copy.in_specs = node.out_specs;
    visit(node);
    visit(copy);
  }

  // The layout of the parameter that gets input i of a call, a loop or a branch.
  Layout layout_of_param(const Node& node, size_t i) const {
    if (const auto* call = node.call()) return layout_of_param(call->callee, i);
    const auto& branch = *node.as<Node::Branch>();
    if (i == 0) return {};
    return i < branch.else_begin() ? layout_of_param(branch.callees[0], i - 1)
                                   : layout_of_param(branch.callees[1], i - branch.else_begin());
  }
  Layout layout_of_param(BodyId callee, size_t param) const {
    const Body& body = program_.body(callee);
    return body.value(body.params[param].in).layout;
  }

  void require_rows(Node& node) {
    for (size_t i = 0; i < node.inputs.size(); ++i) need(node, i, {});
  }

  // Chooses one layout for the outputs of a node and for its inputs of their shape. The first of
  // these decides: the value that the node overwrites, an input in panels, the values that the
  // readers update. Returns false if the target does not run the node in this layout.
  bool fits_kernel(Node& node) {
    if (node.outputs.empty()) return false;
    const FusedOp op = fused_op(body_, node);
    const std::vector<bool> like = op.result_like();
    Layout wanted;
    bool decided = false;
    for (const Tie& t : node.ties) {
      wanted = layout(t.into);
      decided = true;
    }
    for (size_t i = 0; i < node.inputs.size() && !decided; ++i) {
      if (op.layouts[i] == Layout{} || !like[i]) continue;
      wanted = op.layouts[i];
      decided = true;
    }
    if (!decided) wanted = wish_of_readers(node, node.out_specs[0].shape);
    if (node.ties.empty() && makes_what_needs_rows(node)) wanted = {};
    FusedOp planned = op.with_layout(wanted);
    // Convert other inputs to row-major, unless the target prefers panels for them.
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!like[i] && target_.preferred_layout(op, static_cast<int>(i)) == Layout{})
        planned.layouts[i] = {};
    }
    if (!target_.fuses(planned)) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i) need(node, i, planned.layouts[i]);
    for (size_t o = 0; o < node.outputs.size(); ++o)
      layout(node.outputs[o]) = planned.layouts[node.inputs.size() + o];
    const bool rows = std::all_of(planned.layouts.begin(), planned.layouts.end(),
                                  [](const Layout& l) { return l == Layout{}; });
    if (!rows) node.as<Node::Kernel>()->stages = planned.stages;
    return true;
  }

  // The layout of the values that all readers update with the results of a node. Row-major if the
  // readers differ or one of them does not update.
  Layout wish_of_readers(const Node& node, const Shape& shape) {
    Layout wish;
    for (const ValueIndex v : node.outputs) {
      if (std::find(body_.results.begin(), body_.results.end(), v) != body_.results.end())
        return {};
      for (const Node* reader : readers_[v]) {
        if (!has_fused_form(*reader)) return {};
        Layout of_reader;
        for (const Tie& t : reader->ties) {
          if (body_.value(t.into).spec.shape == shape) of_reader = layout(t.into);
        }
        if (of_reader == Layout{} || (wish != Layout{} && wish != of_reader)) return {};
        wish = of_reader;
      }
    }
    return wish;
  }

  Body& body_;
  const Program& program_;
  const Target& target_;
  Ids<NodeId, Node> out_;
  // Valid until the reader is visited.
  Ids<ValueIndex, std::vector<const Node*>> readers_;
  Ids<ValueIndex, bool> needs_rows_;
  std::map<std::pair<ValueIndex, Layout>, ValueIndex> converted_;
  int64_t conversions_ = 0;
};

}  // namespace

int64_t convert_layouts(Body& body, const Program& program, const Target& target) {
  return Converter(body, program, target).run();
}

}  // namespace sluice::compiler
