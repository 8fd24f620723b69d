#include "sluice/compiler/layouts.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace sluice::compiler {
namespace {

bool has_one_op_form(const Node& node) {
  return node.kind == Node::Kind::kKernel && (!node.stages.empty() || node.outputs.size() == 1);
}

// Whether a node reads input i as a tensor of the value's own shape: an alias may have another.
bool has_own_shape(const Body& body, const Node& node, size_t i) {
  return node.in_specs[i].shape == body.value(node.inputs[i]).spec.shape;
}
bool has_own_shape(const Body& body, const Node& node, const Tie& t) {
  return node.out_specs[static_cast<size_t>(t.output)].shape == body.value(t.into).spec.shape;
}

// --- which layouts variables get -----------------------------------------------------------------

// What the uses of a value say about its layout.
struct Opinion {
  Layout wish;
  bool refuses = false;  // A use needs it row-major.
  void add(const Opinion& other) {
    if (wish == Layout{}) wish = other.wish;
    refuses = refuses || other.refuses;
  }
};

class Opinions {
 public:
  Opinions(const BodyOf& body_of, const TargetOf& target_of)
      : body_of_(body_of), target_of_(target_of) {}

  // Of all values of a body: those that lie in the same bytes share one.
  const std::vector<Opinion>& of(const Body& body) {
    const auto found = known_.find(&body);
    if (found != known_.end()) return found->second;
    std::vector<Opinion> opinions(body.values.size());
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
        Opinion& opinion = opinions[static_cast<size_t>(t.into)];
        opinion.refuses = opinion.refuses || node.kind == Node::Kind::kTransfer ||
                          node.kind == Node::Kind::kCollective || !has_own_shape(body, node, t);
        if (out != kNone) opinion.add(opinions[static_cast<size_t>(out)]);
      }
    }
    return known_.emplace(&body, std::move(opinions)).first->second;
  }

  /// Of a parameter of a graph.
  Opinion of_param(GraphId graph, size_t param) {
    const Body& callee = body_of_(graph);
    return of(callee)[static_cast<size_t>(callee.params[param].in)];
  }

  // Whether the op runs on panels wherever it has the shape of its result.
  bool spreads(const Body& body, const Node& node) const {
    return has_one_op_form(node) &&
           target_of_(node.device).fuses(fused_op(body, node).with_layout(kSomePanels));
  }

 private:
  Opinion of_use(const Body& body, const Node& node, size_t i) {
    if (!has_own_shape(body, node, i)) return {{}, true};
    switch (node.kind) {
      case Node::Kind::kKernel: {
        if (!has_one_op_form(node)) return {{}, true};
        const FusedOp op = fused_op(body, node);
        const Target& target = target_of_(node.device);
        const Layout wish = target.preferred_layout(op, static_cast<int>(i));
        if (wish != Layout{}) return {wish, false};
        // The width is the wish of another use; any shows whether the op can.
        return {{}, !op.result_like()[i] || !target.fuses(op.with_layout(kSomePanels))};
      }
      case Node::Kind::kCopy:
        return {};
      case Node::Kind::kCall:
        return of_param(node.callees[0], i);
      case Node::Kind::kLoop:
        if (static_cast<int32_t>(i) < node.carried) return {{}, true};
        return of_param(node.callees[0], i + 2);
      case Node::Kind::kBranch: {
        const auto middle = static_cast<size_t>(node.then_inputs) + 1;
        return i < middle ? of_param(node.callees[0], i - 1)
                          : of_param(node.callees[1], i - middle);
      }
      default:
        return {{}, true};
    }
  }

  const BodyOf& body_of_;
  const TargetOf& target_of_;
  std::map<const Body*, std::vector<Opinion>> known_;
};

// Sets of values that elementwise ops and updates combine.
class Classes {
 public:
  explicit Classes(size_t values) : parent_(values) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  ValueIndex find(ValueIndex v) {
    while (parent_[static_cast<size_t>(v)] != v) v = parent_[static_cast<size_t>(v)];
    return v;
  }
  void join(ValueIndex a, ValueIndex b) {
    a = find(a);
    b = find(b);
    parent_[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
  }

 private:
  std::vector<ValueIndex> parent_;
};

}  // namespace

std::vector<Layout> choose_variable_layouts(const std::vector<const Body*>& entries,
                                            size_t variables, const BodyOf& body_of,
                                            const TargetOf& target_of) {
  Opinions opinions(body_of, target_of);
  std::vector<Opinion> of_variable(variables);
  for (const Body* body : entries) {
    const auto& own = opinions.of(*body);
    for (size_t v = 0; v < body->values.size(); ++v) {
      const BodyValue& value = body->values[v];
      if (value.source != BodyValue::Source::kVariable) continue;
      Opinion& opinion = of_variable[static_cast<size_t>(value.index)];
      if (!is_matrix(value.spec)) opinion.refuses = true;
      opinion.add(own[v]);
    }
  }
  // A wish spreads to the variables that the same updates read, through what lies between.
  for (const Body* body : entries) {
    Classes classes(body->values.size());
    for (const Node& node : body->nodes) {
      for (const Tie& t : node.ties) {
        const ValueIndex out = node.outputs[static_cast<size_t>(t.output)];
        if (out != kNone) classes.join(t.into, out);
      }
      if (node.outputs.size() != 1 || node.outputs[0] == kNone || !is_matrix(node.out_specs[0]))
        continue;
      if (!opinions.spreads(*body, node)) continue;
      const std::vector<bool> like = fused_op(*body, node).result_like();
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != kNone && like[i]) classes.join(node.inputs[i], node.outputs[0]);
      }
    }
    std::vector<Layout> wish(body->values.size());
    const auto for_variables = [&](auto f) {
      for (size_t v = 0; v < body->values.size(); ++v) {
        const BodyValue& value = body->values[v];
        if (value.source != BodyValue::Source::kVariable) continue;
        f(of_variable[static_cast<size_t>(value.index)],
          wish[static_cast<size_t>(classes.find(static_cast<ValueIndex>(v)))]);
      }
    };
    for_variables([](const Opinion& opinion, Layout& of_class) {
      if (!opinion.refuses && opinion.wish != Layout{}) of_class = opinion.wish;
    });
    for_variables([](Opinion& opinion, const Layout& of_class) {
      if (opinion.wish == Layout{}) opinion.wish = of_class;
    });
  }
  std::vector<Layout> layouts;
  for (const Opinion& opinion : of_variable)
    layouts.push_back(opinion.refuses ? Layout{} : opinion.wish);
  return layouts;
}

// --- which layouts the values of a body get ------------------------------------------------------

namespace {

class Assigner {
 public:
  Assigner(Body& body, const BodyOf& body_of, const TargetOf& target_of)
      : body_(body), target_of_(target_of), opinions_(body_of, target_of) {}

  int64_t run() {
    find_readers();
    find_what_needs_rows();
    std::vector<Node> nodes = std::move(body_.nodes);
    for (Node& node : nodes) visit(node);
    for (ValueIndex& v : body_.results) {
      if (v == kNone || layout(v) == Layout{}) continue;
      Node at;
      at.device = body_.device;
      at.where = "result of " + body_.name;
      v = converted(v, {}, at);
    }
    body_.nodes = std::move(out_);
    return conversions_;
  }

 private:
  Layout& layout(ValueIndex v) { return body_.values[static_cast<size_t>(v)].layout; }

  void find_readers() {
    readers_.resize(body_.values.size());
    for (size_t n = 0; n < body_.nodes.size(); ++n) {
      for (const ValueIndex v : body_.nodes[n].inputs) {
        if (v != kNone) readers_[static_cast<size_t>(v)].push_back(&body_.nodes[n]);
      }
    }
  }

  // Values that something overwrites which does not run on panels. All results of a node lie alike.
  void find_what_needs_rows() {
    needs_rows_.assign(body_.values.size(), false);
    for (size_t n = body_.nodes.size(); n-- > 0;) {
      const Node& node = body_.nodes[n];
      for (const Tie& t : node.ties) {
        // What several results overwrite may not lie alike.
        const bool on_panels = node.ties.size() == 1 && has_own_shape(body_, node, t) &&
                               (node.kind == Node::Kind::kCopy || runs_on_panels(node)) &&
                               !makes_what_needs_rows(node);
        if (!on_panels) needs_rows_[static_cast<size_t>(t.into)] = true;
      }
    }
  }

  bool makes_what_needs_rows(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueIndex v) {
      return v != kNone && needs_rows_[static_cast<size_t>(v)];
    });
  }

  bool runs_on_panels(const Node& node) const {
    return has_one_op_form(node) &&
           target_of_(node.device).fuses(fused_op(body_, node).with_layout(kSomePanels));
  }

  // A value in another layout; one conversion serves all readers.
  ValueIndex converted(ValueIndex v, const Layout& to, const Node& at) {
    const auto known = converted_.find({v, to.panel});
    if (known != converted_.end()) return known->second;
    const BodyValue value = body_.value(v);
    Node node;
    node.kind = Node::Kind::kCopy;
    node.inputs = {v};
    node.in_specs = {value.spec};
    node.out_specs = {value.spec};
    BodyValue copy{value.tensor + "'" + to_string(to),
                   value.version,
                   value.spec,
                   BodyValue::Source::kNode,
                   -1,
                   to};
    node.outputs = {body_.add(std::move(copy))};
    node.origin = at.origin;
    node.where = at.where;
    node.device = at.device;
    const ValueIndex made = node.outputs[0];
    out_.push_back(std::move(node));
    converted_.emplace(std::pair(v, to.panel), made);
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
    switch (node.kind) {
      case Node::Kind::kKernel:
        if (!has_one_op_form(node) || !fits_kernel(node)) require_rows(node);
        break;
      case Node::Kind::kCall:
      case Node::Kind::kBranch:
      case Node::Kind::kLoop:
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          if (static_cast<int32_t>(i) < node.carried || is_needed_in_rows(node, i))
            need(node, i, {});
        }
        break;
      case Node::Kind::kCopy:  // Converts; readers that want panels convert back.
        break;
      case Node::Kind::kCollective:
        if (!node.ties.empty() && layout(node.ties[0].into) != Layout{}) return visit_apart(node);
        require_rows(node);
        break;
      default:
        require_rows(node);
    }
    for (const Tie& t : node.ties) {
      const ValueIndex out = node.outputs[static_cast<size_t>(t.output)];
      if (out == kNone) continue;
      if (node.kind == Node::Kind::kKernel) {
        if (layout(out) != layout(t.into)) {
          fail(ErrorKind::kInternal, "{} made at {}: its result is {}, what it overwrites {}",
               name_of(node), node.where, to_string(layout(out)), to_string(layout(t.into)));
        }
      } else {
        layout(out) = layout(t.into);
      }
    }
    out_.push_back(std::move(node));
  }

  // A collective on rows that updates panels makes rows apart, which are then written over the panels.
  void visit_apart(Node& node) {
    Node copy;
    copy.kind = Node::Kind::kCopy;
    copy.origin = node.origin;
    copy.where = node.where;
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

  // Whether the body of a loop would convert what it reads, each time: it is converted before the loop instead. Not what
  // the loop updates.
  bool is_needed_in_rows(const Node& loop, size_t input) {
    const ValueIndex v = loop.inputs[input];
    if (loop.kind != Node::Kind::kLoop || v == kNone || layout(v) == Layout{}) return false;
    const auto updates = [&](int32_t i) { return static_cast<size_t>(i) == input; };
    return std::none_of(loop.updated.begin(), loop.updated.end(), updates) &&
           opinions_.of_param(loop.callees[0], input + 2).refuses;
  }

  void require_rows(Node& node) {
    for (size_t i = 0; i < node.inputs.size(); ++i) need(node, i, {});
  }

  // Gives the node's outputs, and the inputs of their shape, the layout of what it overwrites, or of an input, or of
  // what the readers combine its result with. False if the node runs on rows only.
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
    const Target& target = target_of_(node.device);
    FusedOp planned = op.with_layout(wanted);
    // What is read in panels where that is not wished is converted.
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!like[i] && target.preferred_layout(op, static_cast<int>(i)) == Layout{})
        planned.layouts[i] = {};
    }
    if (!target.fuses(planned)) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i) need(node, i, planned.layouts[i]);
    for (size_t o = 0; o < node.outputs.size(); ++o)
      layout(node.outputs[o]) = planned.layouts[node.inputs.size() + o];
    const bool rows = std::all_of(planned.layouts.begin(), planned.layouts.end(),
                                  [](const Layout& l) { return l == Layout{}; });
    if (!rows) node.stages = planned.stages;
    return true;
  }

  // All readers of the results update something in panels with them.
  Layout wish_of_readers(const Node& node, const Shape& shape) {
    Layout wish;
    for (const ValueIndex v : node.outputs) {
      if (std::find(body_.results.begin(), body_.results.end(), v) != body_.results.end())
        return {};
      for (const Node* reader : readers_[static_cast<size_t>(v)]) {
        if (!has_one_op_form(*reader)) return {};
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
  const TargetOf& target_of_;
  Opinions opinions_;
  std::vector<Node> out_;
  std::vector<std::vector<const Node*>> readers_;  // Those not visited yet are where they were.
  std::vector<bool> needs_rows_;
  std::map<std::pair<ValueIndex, int64_t>, ValueIndex> converted_;
  int64_t conversions_ = 0;
};

}  // namespace

void apply_layouts(Body& body, const std::vector<Layout>& variables) {
  for (BodyValue& v : body.values) {
    if (v.source == BodyValue::Source::kVariable)
      v.layout = variables[static_cast<size_t>(v.index)];
  }
  for (const Node& node : body.nodes) {
    for (const Tie& t : node.ties) {
      const ValueIndex out = node.outputs[static_cast<size_t>(t.output)];
      if (out != kNone) body.values[static_cast<size_t>(out)].layout = body.value(t.into).layout;
    }
  }
}

int64_t assign_layouts(Body& body, const BodyOf& body_of, const TargetOf& target_of) {
  return Assigner(body, body_of, target_of).run();
}

}  // namespace sluice::compiler
