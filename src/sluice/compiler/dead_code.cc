#include "sluice/compiler/dead_code.h"

#include <algorithm>

namespace sluice::compiler {
namespace {

bool has_effect(const Node& node, const FactTable& facts) {
  using Kind = Node::Kind;
  if (node.has_effect || node.kind == Kind::kSend || node.kind == Kind::kReceive ||
      node.kind == Kind::kCollective)
    return true;
  return std::any_of(node.callees.begin(), node.callees.end(),
                     [&](GraphId g) { return facts[g].has_effects; });
}

std::vector<bool> roots(const Body& body) {
  std::vector<bool> needed(body.values.size(), false);
  const auto need = [&](ValueIndex v) {
    if (v != kNone) needed[static_cast<size_t>(v)] = true;
  };
  for (const ValueIndex v : body.results) need(v);
  for (const BodyParam& p : body.params) need(p.out);
  for (const auto& [variable, v] : body.variables) need(v);
  return needed;
}

}  // namespace

int64_t remove_dead_code(Body& body, const FactTable& facts) {
  std::vector<bool> needed = roots(body);
  std::vector<Node> kept;
  for (size_t i = body.nodes.size(); i-- > 0;) {
    Node& node = body.nodes[i];
    const bool live = has_effect(node, facts) ||
                      std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueIndex v) { return needed[static_cast<size_t>(v)]; });
    if (!live) continue;
    for (const ValueIndex v : node.inputs) {
      if (v != kNone) needed[static_cast<size_t>(v)] = true;
    }
    // What a write ends must have been made: its bytes are the ones written.
    for (const Tie& t : node.ties) needed[static_cast<size_t>(t.into)] = true;
    kept.push_back(std::move(node));
  }
  const auto removed = static_cast<int64_t>(body.nodes.size() - kept.size());
  std::reverse(kept.begin(), kept.end());
  body.nodes = std::move(kept);
  return removed;
}

std::vector<std::vector<bool>> used_outputs(const Body& body) {
  std::vector<bool> used = roots(body);
  for (const Node& node : body.nodes) {
    for (const ValueIndex v : node.inputs) {
      if (v != kNone) used[static_cast<size_t>(v)] = true;
    }
    for (const Tie& t : node.ties) used[static_cast<size_t>(t.into)] = true;
  }
  std::vector<std::vector<bool>> result;
  for (const Node& node : body.nodes) {
    std::vector<bool> mask;
    for (const ValueIndex v : node.outputs) mask.push_back(used[static_cast<size_t>(v)]);
    result.push_back(std::move(mask));
  }
  return result;
}

}  // namespace sluice::compiler
