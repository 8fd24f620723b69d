#include "sluice/compiler/passes/fusion/layouts.h"

#include <algorithm>

#include "sluice/compiler/analysis/layout_opinions.h"

namespace sluice::compiler {
namespace {

// Disjoint sets of values that elementwise ops and updates combine.
class Classes {
 public:
  explicit Classes(size_t values) : parent_(values) {
    for (const ValueIndex v : parent_.ids()) parent_[v] = v;
  }
  ValueIndex find(ValueIndex v) {
    while (parent_[v] != v) v = parent_[v];
    return v;
  }
  void join(ValueIndex a, ValueIndex b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  Ids<ValueIndex, ValueIndex> parent_;
};

Classes combined_values(const Body& body, const Target& target) {
  Classes classes(body.values.size());
  for (const Node& node : body.nodes) {
    for (const Tie& t : node.ties) {
      const ValueIndex out = at(node.outputs, t.output);
      if (out != kNone) classes.join(t.into, out);
    }
    if (node.outputs.size() != 1 || node.outputs[0] == kNone ||
        !target.has_layouts(node.out_specs[0]) || !follows_layouts(body, node, target))
      continue;
    const std::vector<bool> like = fused_op(body, node).result_like();
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNone && like[i]) classes.join(node.inputs[i], node.outputs[0]);
    }
  }
  return classes;
}

class Chooser {
 public:
  Chooser(Program& program, const Context& context)
      : program_(program),
        context_(context),
        opinions_(program, context),
        of_variable_(program.variables.size()) {}

  int64_t run() {
    for_each_entry([&](BodyId id) { ask_uses(id); });
    for_each_entry([&](BodyId id) { spread_wishes(program_.body(id)); });
    int64_t chosen = 0;
    for (const exe::VariableId v : of_variable_.ids()) {
      if (of_variable_[v].refuses) continue;
      program_.variables[v].layout = of_variable_[v].wish;
      if (of_variable_[v].wish != Layout{}) ++chosen;
    }
    specialise<std::vector<Layout>>(
        program_, [&](BodyId id, const std::vector<Layout>& params) { return apply(id, params); });
    return chosen;
  }

 private:
  template <typename F>
  void for_each_entry(F&& f) const {
    for (const EntryBodies& entry : program_.entries) {
      for (const BodyId id : entry.bodies) f(id);
    }
  }

  // Whether a value is a variable of the body's device. An entry has values for variables of other
  // devices, too, which it does not read.
  bool is_variable_here(const Body& body, const BodyValue& v) const {
    return v.source == BodyValue::Source::kVariable &&
           program_.variables[exe::VariableId(v.index)].device == body.device;
  }

  void ask_uses(BodyId id) {
    const Body& body = program_.body(id);
    const auto& own = opinions_.of(id);
    for (const ValueIndex v : body.values.ids()) {
      const BodyValue& value = body.values[v];
      if (!is_variable_here(body, value)) continue;
      LayoutOpinion& opinion = of_variable_[exe::VariableId(value.index)];
      if (!context_.target(body).has_layouts(value.spec)) opinion.refuses = true;
      opinion.add(own[v]);
    }
  }

  // Assigns the preferred layout of a variable to the variables that the same updates combine with
  // it.
  void spread_wishes(const Body& body) {
    Classes classes = combined_values(body, context_.target(body));
    Ids<ValueIndex, Layout> wish(body.values.size());
    const auto for_variables = [&](auto f) {
      for (const ValueIndex v : body.values.ids()) {
        const BodyValue& value = body.values[v];
        if (!is_variable_here(body, value)) continue;
        f(of_variable_[exe::VariableId(value.index)], wish[classes.find(v)]);
      }
    };
    for_variables([](const LayoutOpinion& opinion, Layout& of_class) {
      if (!opinion.refuses && opinion.wish != Layout{}) of_class = opinion.wish;
    });
    for_variables([](LayoutOpinion& opinion, const Layout& of_class) {
      if (opinion.wish == Layout{}) opinion.wish = of_class;
    });
  }

  // Sets the layouts of a body's variables and parameters and of the values that overwrite them.
  // Returns the requests of its calls.
  std::vector<Request<std::vector<Layout>>> apply(BodyId id, const std::vector<Layout>& params) {
    Body& body = program_.body(id);
    for (BodyValue& v : body.values) {
      if (is_variable_here(body, v)) v.layout = program_.variables[exe::VariableId(v.index)].layout;
    }
    for (size_t p = 0; p < params.size(); ++p) body.value(body.params[p].in).layout = params[p];
    std::vector<Request<std::vector<Layout>>> requests;
    for (Node& node : body.nodes) {
      for (const Tie& t : node.ties) {
        const ValueIndex out = at(node.outputs, t.output);
        if (out != kNone) body.value(out).layout = body.value(t.into).layout;
      }
      if (auto* call = node.call())
        requests.push_back({&call->callee, arguments(body, node, 0, node.inputs.size())});
      if (auto* branch = node.as<Node::Branch>()) {
        requests.push_back({&branch->callees[0], arguments(body, node, 1, branch->else_begin())});
        requests.push_back(
            {&branch->callees[1], arguments(body, node, branch->else_begin(), node.inputs.size())});
      }
    }
    return requests;
  }

  // Layouts of the parameters that get inputs [first, last); empty: all row-major.
  std::vector<Layout> arguments(const Body& body, const Node& node, size_t first, size_t last) {
    std::vector<Layout> layouts;
    for (size_t i = first; i < last; ++i) {
      const Layout& layout = body.value(node.inputs[i]).layout;
      const bool stays = layout != Layout{} && has_own_shape(body, node, i) &&
                         i >= node.carried() && !is_needed_in_rows(node, i);
      layouts.push_back(stays ? layout : Layout{});
    }
    const bool rows =
        std::all_of(layouts.begin(), layouts.end(), [](const Layout& l) { return l == Layout{}; });
    if (rows) layouts.clear();
    return layouts;
  }

  // Whether to convert an argument of a loop to row-major before the loop. The body of the loop
  // does not update it and would convert it in each iteration.
  bool is_needed_in_rows(const Node& node, size_t input) {
    const auto* loop = node.as<Node::Loop>();
    if (loop == nullptr) return false;
    const bool updated = std::find(loop->updated.begin(), loop->updated.end(),
                                   static_cast<int32_t>(input)) != loop->updated.end();
    return !updated && opinions_.of_param(loop->callee, input).refuses;
  }

  Program& program_;
  const Context& context_;
  LayoutOpinions opinions_;
  Ids<exe::VariableId, LayoutOpinion> of_variable_;
};

}  // namespace

int64_t choose_layouts(Program& program, const Context& context) {
  return Chooser(program, context).run();
}

}  // namespace sluice::compiler
