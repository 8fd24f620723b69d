#include "sluice/compiler/passes/inline_calls.h"

#include <algorithm>
#include <map>
#include <set>

#include "sluice/base/ids/ids.h"
#include "sluice/compiler/rewriter.h"

namespace sluice::compiler {
namespace {

class Inliner {
 public:
  explicit Inliner(Body& body) : body_(body), rewriter_(body) {}

  // Replaces each call by the nodes of the body that `chosen(node)` returns; null: the node stays.
  // Returns the number of calls replaced.
  template <typename Chosen>
  int64_t run(Chosen&& chosen) {
    int64_t count = 0;
    rewriter_.run([&](const Node& node) {
      const Body* const callee = chosen(node);
      if (callee == nullptr) return true;
      splice(node, *callee);
      ++count;
      return false;
    });
    if (views_.empty()) return count;
    for (const Node& node : body_.nodes) {
      for (const Tie& t : node.ties) overwritten_.insert(t.into);
    }
    for (ValueIndex& v : body_.results) v = viewed(v);
    return count;
  }

 private:
  // Inserts the callee's nodes, on the caller's values.
  void splice(const Node& node, Body callee) {
    const Node::Call& call = *node.call();
    Ids<ValueIndex, ValueIndex> map(callee.values.size());
    for (const ValueIndex v : callee.values.ids()) {
      BodyValue& value = callee.values[v];
      map[v] = value.source == BodyValue::Source::kParam ? at(node.inputs, value.index)
                                                         : body_.add(std::move(value));
    }
    const auto mapped = [&](ValueIndex v) { return v == kNone ? kNone : map[v]; };
    for (Node& own : callee.nodes) {
      for (ValueIndex& v : own.inputs) v = mapped(v);
      for (ValueIndex& v : own.outputs) v = mapped(v);
      for (Tie& t : own.ties) t.into = mapped(t.into);
      own.provenance = own.provenance->inside(*node.provenance);
      if (auto* kernel = own.as<Node::Kernel>()) {
        for (SharedProvenance& p : kernel->origins) p = p->inside(*node.provenance);
      }
      rewriter_.insert(std::move(own));
    }
    std::set<ValueIndex> taken;
    for_each_updated(node, [&](size_t input, size_t output) {
      const ValueIndex v = mapped(callee.params[input].out);
      rewriter_.replace_use(node.outputs[output], v);
      taken.insert(v);
    });
    for (int32_t r = 0; r < call.results; ++r) {
      const ValueIndex own = at(callee.results, r);
      const ValueIndex v = mapped(own);
      const bool made_inside = callee.value(own).source == BodyValue::Source::kNode;
      if (made_inside && taken.insert(v).second) {
        rewriter_.replace_use(at(node.outputs, r), v);
        continue;
      }
      // This result is not computed here or is returned twice. A view makes it a separate value, so
      // that a write to it does not change another value.
      Node view = node_like(node);
      view.what = Node::View{};
      add_input(view, v, at(node.out_specs, r));
      add_output(view, at(node.outputs, r), at(node.out_specs, r));
      views_.emplace(view.outputs[0], v);
      rewriter_.insert(std::move(view));
    }
  }

  // Returns the value of which a result is a view, if nothing overwrites either. A body may return
  // a parameter, and a value twice, so it needs no view for that.
  ValueIndex viewed(ValueIndex v) const {
    const auto view = views_.find(v);
    if (view == views_.end()) return v;
    const ValueIndex source = viewed(rewriter_.current(view->second));
    return overwritten_.contains(v) || overwritten_.contains(source) ? v : source;
  }

  Body& body_;
  Rewriter rewriter_;
  std::map<ValueIndex, ValueIndex> views_;  ///< Sources of the views that splice() adds.
  std::set<ValueIndex> overwritten_;        ///< Values that nodes overwrite, after the last splice.
};

// A body with at most this many kernels costs no more than its call, in program bytes and in lost
// fusion.
constexpr size_t kFewNodes = 8;

bool is_small(const Body& body) {
  return body.nodes.size() <= kFewNodes &&
         std::all_of(body.nodes.begin(), body.nodes.end(), [](const Node& n) {
           return n.is<Node::Kernel>() && !n.as<Node::Kernel>()->prints;
         });
}

// Whether a body consists of transfers, some of them overlapped. An overlapped transfer can run
// overlapped with another phase only if it is in the body of that phase.
bool is_overlapped_transfers(const Body& body) {
  const auto overlapped = [](const Node& n) {
    return n.is<Node::Transfer>() && n.as<Node::Transfer>()->effect.io == IoMode::kIoOverlapped;
  };
  return std::any_of(body.nodes.begin(), body.nodes.end(), overlapped) &&
         std::all_of(body.nodes.begin(), body.nodes.end(), [](const Node& n) {
           const bool scalar =
               n.is<Node::Kernel>() && n.outputs.size() == 1 && n.out_specs[0].elements() == 1;
           return n.is<Node::Transfer>() || n.is<Node::View>() || scalar;
         });
}

std::map<BodyId, int64_t> count_calls(const Program& program) {
  std::map<BodyId, int64_t> calls;
  for (const BodyId id : callees_first(program)) {
    for (const Node& node : program.body(id).nodes) {
      if (const auto* call = node.as<Node::Call>()) ++calls[call->callee];
    }
  }
  return calls;
}

}  // namespace

int64_t inline_calls(Program& program, const Context&) {
  std::map<BodyId, int64_t> calls = count_calls(program);
  int64_t count = 0;
  for (const BodyId id : callees_first(program)) {
    Body& body = program.body(id);
    count += Inliner(body).run([&](const Node& node) -> const Body* {
      const auto* call = node.as<Node::Call>();
      if (call == nullptr) return nullptr;
      const Body& callee = program.body(call->callee);
      const bool chosen =
          calls[call->callee] == 1 || is_small(callee) || is_overlapped_transfers(callee);
      return chosen ? &callee : nullptr;
    });
  }
  return count;
}

}  // namespace sluice::compiler
