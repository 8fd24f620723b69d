#include "sluice/compiler/inline_calls.h"

#include <algorithm>

namespace sluice::compiler {
namespace {

class Inliner {
 public:
  explicit Inliner(Body& body) : body_(body) {}

  // Appends the callee's nodes in place of the call, on the caller's values.
  void splice(const Node& call, Body callee) {
    std::vector<ValueIndex> map(callee.values.size(), kNone);
    for (size_t v = 0; v < callee.values.size(); ++v) {
      BodyValue& value = callee.values[v];
      map[v] = value.source == BodyValue::Source::kParam
                   ? call.inputs[static_cast<size_t>(value.index)]
                   : body_.add(std::move(value));
    }
    const auto mapped = [&](ValueIndex v) {
      return v == kNone ? kNone : map[static_cast<size_t>(v)];
    };
    for (Node& node : callee.nodes) {
      for (ValueIndex& v : node.inputs) v = mapped(v);
      for (ValueIndex& v : node.outputs) v = mapped(v);
      for (Tie& t : node.ties) t.into = mapped(t.into);
      node.device = call.device;
      out_.push_back(std::move(node));
    }
    rename_.resize(body_.values.size(), kNone);
    std::vector<bool> taken(body_.values.size(), false);
    for (size_t u = 0; u < call.updated.size(); ++u) {
      const ValueIndex v = mapped(callee.params[static_cast<size_t>(call.updated[u])].out);
      rename(call.outputs[static_cast<size_t>(call.results) + u], v);
      taken[static_cast<size_t>(v)] = true;
    }
    for (int32_t r = 0; r < call.results; ++r) {
      const ValueIndex own = callee.results[static_cast<size_t>(r)];
      const ValueIndex v = mapped(own);
      const bool made_inside = callee.value(own).source == BodyValue::Source::kNode;
      if (made_inside && !taken[static_cast<size_t>(v)]) {
        rename(call.outputs[static_cast<size_t>(r)], v);
        taken[static_cast<size_t>(v)] = true;
        continue;
      }
      // An input, a variable, or a second name: a value of its own, so that a write to it is not seen elsewhere.
      Node view;
      view.kind = Node::Kind::kView;
      view.inputs = {v};
      view.in_specs = {call.out_specs[static_cast<size_t>(r)]};
      view.outputs = {call.outputs[static_cast<size_t>(r)]};
      view.out_specs = {call.out_specs[static_cast<size_t>(r)]};
      view.origin = call.origin;
      view.where = call.where;
      view.device = call.device;
      out_.push_back(std::move(view));
    }
  }

  void keep(Node node) {
    for (ValueIndex& v : node.inputs) v = now(v);
    for (Tie& t : node.ties) t.into = now(t.into);
    out_.push_back(std::move(node));
  }

  void finish() {
    for (ValueIndex& v : body_.results) v = now(v);
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

  Body& body_;
  std::vector<Node> out_;
  std::vector<ValueIndex> rename_;
};

// A call costs about as much as this many kernels, in program bytes and in what cannot be fused across it.
constexpr size_t kFewNodes = 8;

bool is_small(const Body& body) {
  return body.nodes.size() <= kFewNodes &&
         std::all_of(body.nodes.begin(), body.nodes.end(),
                     [](const Node& n) { return n.kind == Node::Kind::kKernel && !n.has_effect; });
}

// Loads or stores of a phase that may run beside the phase before or after: only in the caller's order can they.
bool is_overlapped_transfers(const Body& body) {
  const auto overlapped = [](const Node& n) {
    return n.kind == Node::Kind::kTransfer && n.effect.io == IoMode::kIoOverlapped;
  };
  return std::any_of(body.nodes.begin(), body.nodes.end(), overlapped) &&
         std::all_of(body.nodes.begin(), body.nodes.end(), [](const Node& n) {
           const bool scalar = n.kind == Node::Kind::kKernel && n.outputs.size() == 1 &&
                               n.out_specs[0].elements() == 1;
           return n.kind == Node::Kind::kTransfer || n.kind == Node::Kind::kView || scalar;
         });
}

}  // namespace

int64_t inline_calls(Body& body, const FactTable& facts,
                     const std::function<const Body&(GraphId)>& body_of) {
  int64_t count = 0;
  Inliner inliner(body);
  std::vector<Node> nodes = std::move(body.nodes);
  for (Node& node : nodes) {
    const auto is_part = [&](GraphId callee) {
      return facts[callee].call_sites == 1 || is_small(body_of(callee)) ||
             is_overlapped_transfers(body_of(callee));
    };
    if (node.kind != Node::Kind::kCall || !is_part(node.callees[0])) {
      inliner.keep(std::move(node));
      continue;
    }
    for (ValueIndex& v : node.inputs) v = inliner.now(v);
    inliner.splice(node, body_of(node.callees[0]));
    ++count;
  }
  inliner.finish();
  return count;
}

}  // namespace sluice::compiler
