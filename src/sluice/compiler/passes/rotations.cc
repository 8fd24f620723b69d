#include "sluice/compiler/passes/rotations.h"

#include <algorithm>
#include <map>
#include <optional>

namespace sluice::compiler {
namespace {

// A loop: a body and the index of its node.
using LoopNode = std::pair<BodyId, NodeId>;

// The loops of each body.
std::map<BodyId, std::vector<LoopNode>> loops_by_body(const Program& program) {
  std::map<BodyId, std::vector<LoopNode>> loops;
  for (const BodyId id : callees_first(program)) {
    const Ids<NodeId, Node>& nodes = program.body(id).nodes;
    for (const NodeId n : nodes.ids()) {
      if (const auto* loop = nodes[n].as<Node::Loop>()) loops[loop->callee].emplace_back(id, n);
    }
  }
  return loops;
}

bool alike(const BodyValue& a, const BodyValue& b) {
  return a.spec == b.spec && a.layout == b.layout;
}

// For each carried value, the parameter whose value is its result, or -1.
std::vector<int32_t> sources(const Body& body, size_t carried) {
  std::vector<int32_t> result(carried, -1);
  std::vector<bool> taken(result.size(), false);
  for (size_t k = 0; k < result.size(); ++k) {
    if (body.results[k] == kNone) continue;
    const BodyValue& value = body.value(body.results[k]);
    if (value.source != BodyValue::Source::kParam || value.index >= std::ssize(result)) continue;
    if (at(taken, value.index) || at(body.params, value.index).out != kNone) continue;
    if (!alike(value, body.value(body.params[k].in))) continue;
    at(taken, value.index) = true;
    result[k] = value.index;
  }
  return result;
}

// The bytes of a value and its views in a body.
struct ValueUses {
  NodeId last_read;          // Last node that reads the value itself.
  NodeId last_view;          // Last node that reads one of its views.
  bool overwritten = false;  // Whether a node overwrites them.
  bool kept = false;         // Whether they are needed after the body has ended.
};

ValueUses uses_of(const Body& body, ValueIndex value) {
  const Ids<ValueIndex, bool> kept = kept_values(body);
  Ids<ValueIndex, bool> same(body.values.size());
  const auto shows = [&](ValueIndex v) { return v != kNone && same[v]; };
  ValueUses uses;
  same[value] = true;
  for (const NodeId n : body.nodes.ids()) {
    const Node& node = body.nodes[n];
    for (const ValueIndex v : node.inputs) {
      if (!shows(v)) continue;
      if (node.is<Node::View>()) {
        same[node.outputs[0]] = true;
      } else {
        (v == value ? uses.last_read : uses.last_view) = n;
      }
    }
    for (const Tie& t : node.ties) uses.overwritten = uses.overwritten || shows(t.into);
  }
  for (const ValueIndex v : same.ids()) uses.kept = uses.kept || (same[v] && kept[v]);
  return uses;
}

// Output `output` of node `node`.
struct Maker {
  NodeId node;
  int32_t output;
};

// The output of which a value is a view, or the one that is the value. Empty if no node makes it.
std::optional<Maker> maker_of(const Body& body, ValueIndex v) {
  for (size_t n = body.nodes.size(); n-- > 0;) {
    const Node& node = body.nodes[NodeId(n)];
    const auto found = std::find(node.outputs.begin(), node.outputs.end(), v);
    if (found == node.outputs.end()) continue;
    if (!node.is<Node::View>())
      return Maker{NodeId(n), static_cast<int32_t>(found - node.outputs.begin())};
    v = node.inputs[0];
  }
  return std::nullopt;
}

// Whether the bytes of an output can be chosen. Otherwise a result is a copy of it.
bool is_free(const Body& body, const Maker& maker) {
  const Node& node = body.nodes[maker.node];
  const bool tied = std::any_of(node.ties.begin(), node.ties.end(),
                                [&](const Tie& t) { return t.output == maker.output; });
  const ValueIndex v = at(node.outputs, maker.output);
  return !tied && !node.is<Node::Loop>() && !uses_of(body, v).overwritten;
}

// Whether an output may be made in the bytes of a value with these uses. The node that makes it
// may read the value itself if its kernel may write there.
bool may_overwrite(const Body& body, ValueIndex value, const ValueUses& uses, const Maker& maker,
                   const Ids<NodeId, KernelChoice>& choices) {
  const NodeId n = maker.node;
  const Node& node = body.nodes[maker.node];
  // A collective that has a tie updates its input.
  if (node.is<Node::Collective>() || uses.last_view >= n || uses.last_read > n) return false;
  const auto& pairs = choices[maker.node].may_coincide;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const std::pair<int, int> pair(static_cast<int>(i), maker.output);
    if (node.inputs[i] == value && std::find(pairs.begin(), pairs.end(), pair) == pairs.end())
      return false;
  }
  return true;
}

// Makes result `newest` in the bytes of parameter `oldest`. Returns false, and changes nothing, if
// a node reads the parameter later.
bool overwrite(Body& body, int32_t newest, int32_t oldest, Ids<NodeId, KernelChoice>& choices) {
  BodyParam& param = at(body.params, oldest);
  ValueIndex& result = at(body.results, newest);
  const ValueIndex next = result;
  if (next == kNone || param.out != kNone || !alike(body.value(next), body.value(param.in)))
    return false;
  const ValueUses old = uses_of(body, param.in);
  if (old.kept || old.overwritten) return false;
  const std::optional<Maker> maker = maker_of(body, next);
  if (maker && is_free(body, *maker)) {
    if (!may_overwrite(body, param.in, old, *maker, choices)) return false;
    body.nodes[maker->node].ties.push_back({maker->output, param.in});
    param.out = next;
  } else {
    Node at;
    at.device = body.device;
    at.provenance = Provenance{.line = "result of " + body.name};
    Node copy = make_copy(body, next, "'result", at);
    copy.ties = {{0, param.in}};
    param.out = copy.outputs[0];
    body.nodes.push_back(std::move(copy));
    choices.emplace_back();
  }
  result = kNone;
  return true;
}

}  // namespace

int64_t find_rotations(Program& program, const Context&) {
  int64_t count = 0;
  const auto loop_at = [&](const LoopNode& at) {
    return program.body(at.first).nodes[at.second].as<Node::Loop>();
  };
  for (const auto& [id, loops] : loops_by_body(program)) {
    Body& body = program.body(id);
    Node::Loop found = *loop_at(loops[0]);
    found.rotates = sources(body, program.body(loops[0].first).nodes[loops[0].second].carried());
    for (size_t k = 0; k < found.rotates.size(); ++k) {
      if (found.rotates[k] < 0) continue;
      body.results[k] = kNone;
      ++count;
    }
    for (const Rotation& rotation : rotations_of(found)) {
      const int32_t newest = rotation.carried.front(), oldest = rotation.carried.back();
      if (!found.returns_result(newest) ||
          !overwrite(body, newest, oldest, program.lowered[id].choices))
        continue;
      at(found.rotates, newest) = oldest;
      ++count;
    }
    const auto rotates = [](int32_t from) { return from >= 0; };
    if (std::none_of(found.rotates.begin(), found.rotates.end(), rotates)) continue;
    for (const LoopNode& at : loops) loop_at(at)->rotates = found.rotates;
  }
  return count;
}

}  // namespace sluice::compiler
