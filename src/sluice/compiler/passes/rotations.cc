#include "sluice/compiler/passes/rotations.h"

#include <algorithm>
#include <map>
#include <optional>

namespace sluice::compiler {
namespace {

// A loop: a body and the index of its node.
using LoopNode = std::pair<BodyId, size_t>;

// The loops of each body.
std::map<BodyId, std::vector<LoopNode>> loops_by_body(const Program& program) {
  std::map<BodyId, std::vector<LoopNode>> loops;
  for (const BodyId id : callees_first(program)) {
    const std::vector<Node>& nodes = program.body(id).nodes;
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (const auto* loop = nodes[n].as<Node::Loop>()) loops[loop->callee].emplace_back(id, n);
    }
  }
  return loops;
}

bool alike(const BodyValue& a, const BodyValue& b) {
  return a.spec == b.spec && a.layout == b.layout;
}

// For each carried value, the parameter whose value is its result, or -1.
std::vector<int32_t> sources(const Body& body, int32_t carried) {
  std::vector<int32_t> result(static_cast<size_t>(carried), -1);
  std::vector<bool> taken(result.size(), false);
  for (size_t k = 0; k < result.size(); ++k) {
    if (body.results[k] == kNone) continue;
    const BodyValue& value = body.value(body.results[k]);
    if (value.source != BodyValue::Source::kParam || value.index >= carried) continue;
    const auto from = static_cast<size_t>(value.index);
    if (taken[from] || body.params[from].out != kNone) continue;
    if (!alike(value, body.value(body.params[k].in))) continue;
    taken[from] = true;
    result[k] = value.index;
  }
  return result;
}

// The bytes of a value and its views in a body.
struct ValueUses {
  int32_t last_read = -1;    // Last node that reads the value itself.
  int32_t last_view = -1;    // Last node that reads one of its views.
  bool overwritten = false;  // Whether a node overwrites them.
  bool kept = false;         // Whether they are needed after the body has ended.
};

ValueUses uses_of(const Body& body, ValueIndex value) {
  const std::vector<bool> kept = kept_values(body);
  std::vector<bool> same(body.values.size(), false);
  const auto shows = [&](ValueIndex v) { return v != kNone && same[static_cast<size_t>(v)]; };
  ValueUses uses;
  same[static_cast<size_t>(value)] = true;
  for (size_t n = 0; n < body.nodes.size(); ++n) {
    const Node& node = body.nodes[n];
    for (const ValueIndex v : node.inputs) {
      if (!shows(v)) continue;
      if (node.is<Node::View>()) {
        same[static_cast<size_t>(node.outputs[0])] = true;
      } else {
        (v == value ? uses.last_read : uses.last_view) = static_cast<int32_t>(n);
      }
    }
    for (const Tie& t : node.ties) uses.overwritten = uses.overwritten || shows(t.into);
  }
  for (size_t v = 0; v < same.size(); ++v) uses.kept = uses.kept || (same[v] && kept[v]);
  return uses;
}

// Output `output` of node `node`.
struct Maker {
  size_t node;
  int32_t output;
};

// The output of which a value is a view, or the one that is the value. Empty if no node makes it.
std::optional<Maker> maker_of(const Body& body, ValueIndex v) {
  for (size_t n = body.nodes.size(); n-- > 0;) {
    const Node& node = body.nodes[n];
    const auto found = std::find(node.outputs.begin(), node.outputs.end(), v);
    if (found == node.outputs.end()) continue;
    if (!node.is<Node::View>()) return Maker{n, static_cast<int32_t>(found - node.outputs.begin())};
    v = node.inputs[0];
  }
  return std::nullopt;
}

// Whether the bytes of an output can be chosen. Otherwise a result is a copy of it.
bool is_free(const Body& body, const Maker& maker) {
  const Node& node = body.nodes[maker.node];
  const bool tied = std::any_of(node.ties.begin(), node.ties.end(),
                                [&](const Tie& t) { return t.output == maker.output; });
  const ValueIndex v = node.outputs[static_cast<size_t>(maker.output)];
  return !tied && !node.is<Node::Loop>() && !uses_of(body, v).overwritten;
}

// Whether an output may be made in the bytes of a value with these uses. The node that makes it
// may read the value itself if its kernel may write there.
bool may_overwrite(const Body& body, ValueIndex value, const ValueUses& uses, const Maker& maker,
                   const std::vector<KernelChoice>& choices) {
  const auto n = static_cast<int32_t>(maker.node);
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

// Makes result `k` in the bytes of parameter `oldest`. Returns false, and changes nothing, if a
// node reads the parameter later.
bool overwrite(Body& body, size_t k, int32_t oldest, std::vector<KernelChoice>& choices) {
  BodyParam& param = body.params[static_cast<size_t>(oldest)];
  const ValueIndex next = body.results[k];
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
  body.results[k] = kNone;
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
    found.rotates = sources(body, found.carried);
    for (size_t k = 0; k < found.rotates.size(); ++k) {
      if (found.rotates[k] < 0) continue;
      body.results[k] = kNone;
      ++count;
    }
    for (const Rotation& rotation : rotations_of(found)) {
      const int32_t newest = rotation.carried.front(), oldest = rotation.carried.back();
      if (!found.returns_result(newest) ||
          !overwrite(body, static_cast<size_t>(newest), oldest, program.lowered[id].choices))
        continue;
      found.rotates[static_cast<size_t>(newest)] = oldest;
      ++count;
    }
    const auto rotates = [](int32_t from) { return from >= 0; };
    if (std::none_of(found.rotates.begin(), found.rotates.end(), rotates)) continue;
    for (const LoopNode& at : loops) loop_at(at)->rotates = found.rotates;
  }
  return count;
}

}  // namespace sluice::compiler
