#include "sluice/compiler/passes/dead_code.h"

#include <algorithm>

namespace sluice::compiler {

Ids<NodeId, NodeId> remove_dead_nodes(Body& body, const FactTable& facts) {
  Ids<ValueIndex, bool> needed = kept_values(body);
  const auto need = [&](ValueIndex v) {
    if (v != kNone) needed[v] = true;
  };
  Ids<NodeId, Node> kept;
  Ids<NodeId, NodeId> indices;
  for (size_t i = body.nodes.size(); i-- > 0;) {
    Node& node = body.nodes[NodeId(i)];
    const bool live = has_effect(node, facts) ||
                      std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueIndex v) { return v != kNone && needed[v]; });
    if (!live) continue;
    for (const ValueIndex v : node.inputs) need(v);
    // A write needs the value that it overwrites, because it uses the bytes of this value.
    for (const Tie& t : node.ties) need(t.into);
    kept.push_back(std::move(node));
    indices.push_back(NodeId(i));
  }
  std::reverse(kept.begin(), kept.end());
  std::reverse(indices.begin(), indices.end());
  body.nodes = std::move(kept);
  return indices;
}

std::vector<bool> request_results(Node& call, const std::vector<bool>& used) {
  std::vector<bool> read(used.begin(), used.begin() + call.as<Node::Call>()->results);
  for (size_t r = 0; r < read.size(); ++r) {
    if (!read[r]) call.outputs[r] = kNone;
  }
  if (std::find(read.begin(), read.end(), false) == read.end()) read.clear();
  return read;
}

void drop_results(Body& body, const std::vector<bool>& read) {
  for (size_t r = 0; r < read.size(); ++r) {
    if (!read[r]) body.results[r] = kNone;
  }
}

int64_t remove_dead_code(Program& program, const Context&) {
  const FactTable facts(program);
  int64_t removed = 0;
  // The key of a body: whether its callers read each result; empty: all.
  specialise<std::vector<bool>>(program, [&](BodyId id, const std::vector<bool>& read) {
    Body& body = program.body(id);
    drop_results(body, read);
    const size_t before = body.nodes.size();
    removed += static_cast<int64_t>(before - remove_dead_nodes(body, facts).size());
    const auto used = used_outputs(body);
    std::vector<Request<std::vector<bool>>> requests;
    for (const NodeId n : body.nodes.ids()) {
      Node& node = body.nodes[n];
      auto* call = node.as<Node::Call>();
      if (call == nullptr) {
        for_each_callee(node, [&](BodyId& callee) { requests.push_back({&callee, {}}); });
        continue;
      }
      requests.push_back({&call->callee, request_results(node, used[n])});
    }
    return requests;
  });
  return removed;
}

}  // namespace sluice::compiler
