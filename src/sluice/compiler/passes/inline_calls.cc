#include "sluice/compiler/passes/inline_calls.h"

#include <algorithm>
#include <map>

namespace sluice::compiler {
namespace {

class Inliner {
 public:
  explicit Inliner(Body& body) : body_(body) {}

  // Appends the callee's nodes in place of the call, on the caller's values.
  void splice(const Node& node, Body callee) {
    const Node::Call& call = *node.call();
    std::vector<ValueIndex> map(callee.values.size(), kNone);
    for (size_t v = 0; v < callee.values.size(); ++v) {
      BodyValue& value = callee.values[v];
      map[v] = value.source == BodyValue::Source::kParam
                   ? node.inputs[static_cast<size_t>(value.index)]
                   : body_.add(std::move(value));
    }
    const auto mapped = [&](ValueIndex v) {
      return v == kNone ? kNone : map[static_cast<size_t>(v)];
    };
    for (Node& own : callee.nodes) {
      for (ValueIndex& v : own.inputs) v = mapped(v);
      for (ValueIndex& v : own.outputs) v = mapped(v);
      for (Tie& t : own.ties) t.into = mapped(t.into);
      own.provenance = own.provenance->inside(*node.provenance);
      if (auto* kernel = own.as<Node::Kernel>()) {
        for (SharedProvenance& p : kernel->origins) p = p->inside(*node.provenance);
      }
      out_.push_back(std::move(own));
    }
    rename_.resize(body_.values.size(), kNone);
    std::vector<bool> taken(body_.values.size(), false);
    for (size_t u = 0; u < call.updated.size(); ++u) {
      const ValueIndex v = mapped(callee.params[static_cast<size_t>(call.updated[u])].out);
      rename(node.outputs[static_cast<size_t>(call.results) + u], v);
      taken[static_cast<size_t>(v)] = true;
    }
    for (int32_t r = 0; r < call.results; ++r) {
      const ValueIndex own = callee.results[static_cast<size_t>(r)];
      const ValueIndex v = mapped(own);
      const bool made_inside = callee.value(own).source == BodyValue::Source::kNode;
      if (made_inside && !taken[static_cast<size_t>(v)]) {
        rename(node.outputs[static_cast<size_t>(r)], v);
        taken[static_cast<size_t>(v)] = true;
        continue;
      }
      // This result is not computed here or is returned twice. A view makes it a separate value, so
      // that a write to it does not change another value.
      Node view;
      view.what = Node::View{};
      view.inputs = {v};
      view.in_specs = {node.out_specs[static_cast<size_t>(r)]};
      view.outputs = {node.outputs[static_cast<size_t>(r)]};
      view.out_specs = {node.out_specs[static_cast<size_t>(r)]};
      view.origin = node.origin;
      view.provenance = node.provenance;
      view.device = node.device;
      views_.emplace(view.outputs[0], v);
      out_.push_back(std::move(view));
    }
  }

  void keep(Node node) {
    for (ValueIndex& v : node.inputs) v = now(v);
    for (Tie& t : node.ties) t.into = now(t.into);
    out_.push_back(std::move(node));
  }

  void finish() {
    for (ValueIndex& v : body_.results) v = viewed(now(v));
    for (BodyParam& p : body_.params) p.out = now(p.out);
    for (auto& [variable, v] : body_.variables) v = now(v);
    body_.nodes = std::move(out_);
  }

  ValueIndex now(ValueIndex v) const {
    if (v == kNone || static_cast<size_t>(v) >= rename_.size()) return v;
    const ValueIndex renamed = rename_[static_cast<size_t>(v)];
    return renamed == kNone ? v : renamed;
  }

 private:
  void rename(ValueIndex from, ValueIndex to) { rename_[static_cast<size_t>(from)] = to; }

  // Returns the value of which a result is a view, if nothing overwrites either. A body may return
  // a parameter, and a value twice, so it needs no view for that.
  ValueIndex viewed(ValueIndex v) const {
    const auto view = views_.find(v);
    if (view == views_.end()) return v;
    const ValueIndex source = viewed(now(view->second));
    for (const Node& node : out_) {
      for (const Tie& t : node.ties) {
        if (t.into == v || t.into == source) return v;
      }
    }
    return source;
  }

  Body& body_;
  std::vector<Node> out_;
  std::vector<ValueIndex> rename_;
  std::map<ValueIndex, ValueIndex> views_;  ///< Sources of the views that replace() adds.
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
    Inliner inliner(body);
    std::vector<Node> nodes = std::move(body.nodes);
    for (Node& node : nodes) {
      const auto* call = node.as<Node::Call>();
      if (call == nullptr) {
        inliner.keep(std::move(node));
        continue;
      }
      const Body& callee = program.body(call->callee);
      if (calls[call->callee] != 1 && !is_small(callee) && !is_overlapped_transfers(callee)) {
        inliner.keep(std::move(node));
        continue;
      }
      for (ValueIndex& v : node.inputs) v = inliner.now(v);
      inliner.splice(node, callee);
      ++count;
    }
    inliner.finish();
  }
  return count;
}

}  // namespace sluice::compiler
