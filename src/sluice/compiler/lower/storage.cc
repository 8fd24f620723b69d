#include "sluice/compiler/lower/storage.h"

#include <algorithm>
#include <limits>
#include <map>

#include "sluice/base/checked.h"

namespace sluice::compiler {
namespace {

constexpr NodeId kNever(std::numeric_limits<int32_t>::max());

// The memory in which the initial values of a loop's carried inputs are computed. Initial values of
// rotations are always computed in the ring, which also has slots for the values of the ramps
// (ring_slots.h).
enum class FirstValues { kInRing, kCopied };

class Assigner {
 public:
  Assigner(Body& body, Ids<NodeId, KernelChoice>& choices, const Target& target,
           FirstValues first_values)
      : body_(body), choices_(choices), target_(target), first_values_(first_values) {}

  Storage run() {
    add_ring_copies();
    add_result_copies();
    resolve_views();
    make_tenants();
    apply_ties();
    place_results();
    return std::move(out_);
  }

 private:
  // Adds copies before each loop that move its carried inputs into their rings, unless the inputs
  // can be made there.
  void add_ring_copies() {
    Ids<ValueIndex, NodeId> last, tied_at;
    find_uses(last, tied_at);
    const Ids<ValueIndex, bool> fixed = find_fixed();
    Ids<NodeId, Node> nodes;
    Ids<NodeId, KernelChoice> choices;
    for (const NodeId i : body_.nodes.ids()) {
      Node& node = body_.nodes[i];
      const auto* loop = node.as<Node::Loop>();
      const bool in_ring =
          first_values_ == FirstValues::kInRing || (loop != nullptr && !loop->rotates.empty());
      for (size_t k = 0; k < node.carried(); ++k) {
        ValueIndex& input = node.inputs[k];
        // The loop overwrites the ring, so it must be the only reader from now on.
        const bool once = std::count(node.inputs.begin(), node.inputs.end(), input) == 1;
        const bool free = once && !fixed[input];
        if (in_ring && free && last[input] == i) continue;
        Node copy = make_copy(body_, input, "'carried", node);
        input = copy.outputs[0];
        nodes.push_back(std::move(copy));
        choices.emplace_back();
      }
      nodes.push_back(std::move(node));
      choices.push_back(std::move(choices_[i]));
    }
    body_.nodes = std::move(nodes);
    choices_ = std::move(choices);
  }

  // Finds the values that are not stored in the frame, or that share their bytes with other values.
  Ids<ValueIndex, bool> find_fixed() const {
    Ids<ValueIndex, bool> fixed(body_.values.size());
    const auto fix = [&](ValueIndex v) {
      if (v != kNone) fixed[v] = true;
    };
    for (const ValueIndex v : body_.values.ids())
      fixed[v] = body_.values[v].source != BodyValue::Source::kNode;
    for (const Node& node : body_.nodes) {
      if (node.is<Node::View>()) {
        fix(node.inputs[0]);
        fix(node.outputs[0]);
      }
      for (const Tie& t : node.ties) {
        fix(t.into);
        fix(at(node.outputs, t.output));
      }
      for (size_t k = 0; k < node.carried(); ++k) fix(node.outputs[k]);
    }
    return fixed;
  }

  // A result is written at the caller's address. It becomes a copy if its bytes are stored
  // elsewhere, if it is overwritten, or if it is already returned.
  void add_result_copies() {
    Ids<ValueIndex, bool> taken(body_.values.size());
    Ids<ValueIndex, ValueIndex> source(body_.values.size());  // Input of each view.
    Ids<ValueIndex, bool> is_external(body_.values.size());   // Outside the frame or in a ring.
    Ids<ValueIndex, bool> tied(body_.values.size());
    for (const ValueIndex v : body_.values.ids())
      is_external[v] = body_.values[v].source != BodyValue::Source::kNode;
    for (const Node& node : body_.nodes) {
      if (node.is<Node::View>()) source[node.outputs[0]] = node.inputs[0];
      for (const Tie& t : node.ties) {
        tied[t.into] = true;
        if (is_external[t.into]) is_external[at(node.outputs, t.output)] = true;
      }
      if (node.is<Node::View>() && is_external[node.inputs[0]]) is_external[node.outputs[0]] = true;
      for (size_t k = 0; k < node.carried(); ++k)  // Carried results are in rings.
        is_external[node.outputs[k]] = true;
    }
    for (ValueIndex& result : body_.results) {
      if (result == kNone) continue;
      ValueIndex root = result;
      while (source[root] != kNone) root = source[root];
      if (!is_external[root] && !taken[root] && !tied[root]) {
        taken[root] = true;
        continue;
      }
      Node at;
      at.device = body_.device;
      at.provenance = Provenance{.line = "result of " + body_.name};
      Node copy = make_copy(body_, result, "'result", at);
      result = copy.outputs[0];
      body_.nodes.push_back(std::move(copy));
      choices_.emplace_back();
    }
  }

  // For each value, finds the last node that reads it without a view, and the node that overwrites
  // it.
  void find_uses(Ids<ValueIndex, NodeId>& last, Ids<ValueIndex, NodeId>& tied_at) const {
    last.assign(body_.values.size(), NodeId());
    tied_at.assign(body_.values.size(), kNever);
    for (const NodeId n : body_.nodes.ids()) {
      const Node& node = body_.nodes[n];
      if (!node.is<Node::View>()) {
        for (const ValueIndex v : node.inputs) {
          if (v != kNone) last[v] = n;
        }
      }
      for (const Tie& t : node.ties) tied_at[t.into] = n;
    }
    for (const ValueIndex v : body_.results) {
      if (v != kNone) last[v] = body_.nodes.end_id();
    }
    for (const BodyParam& p : body_.params) {
      if (p.out != kNone) last[p.out] = body_.nodes.end_id();
    }
    for (const auto& [variable, v] : body_.variables) last[v] = body_.nodes.end_id();
  }

  // Converts views that cannot share the bytes of their source into copies.
  void resolve_views() {
    Ids<ValueIndex, NodeId> tied_at;
    find_uses(last_, tied_at);
    for (size_t i = body_.nodes.size(); i-- > 0;) {
      const NodeId n(i);
      const Node& node = body_.nodes[n];
      if (!node.is<Node::View>()) continue;
      NodeId& source = last_[node.inputs[0]];
      source = std::max(source, std::max(n, last_[node.outputs[0]]));
    }
    root_.resize(body_.values.size());
    for (const ValueIndex v : root_.ids()) root_[v] = v;
    for (Node& node : body_.nodes) {
      if (!node.is<Node::View>()) continue;
      const ValueIndex out = node.outputs[0];
      const ValueIndex root = root_[node.inputs[0]];
      const bool source_lives = last_[out] < tied_at[root];
      if (source_lives && tied_at[out] == kNever) {
        root_[out] = root;
      } else {
        node.what = Node::Copy{};
      }
    }
    // The remaining views extend the life of their root.
    find_uses(last_, tied_at);
    for (size_t i = body_.nodes.size(); i-- > 0;) {
      const Node& node = body_.nodes[NodeId(i)];
      if (!node.is<Node::View>()) continue;
      NodeId& source = last_[root_[node.outputs[0]]];
      source = std::max(source, last_[node.outputs[0]]);
    }
  }

  void add_tenant(ValueIndex root, NodeId begin, Block block) {
    const TenantId tenant = out_.tenants.end_id();
    block.tenants = {tenant};
    block.bytes = target_.buffer_bytes(body_.value(root).spec, body_.value(root).layout);
    out_.tenants.push_back({root, out_.blocks.end_id(), begin, std::max(begin, last_[root]), 0});
    out_.blocks.push_back(std::move(block));
    out_.tenant_of[root] = tenant;
  }

  void make_tenants() {
    out_.tenant_of.assign(body_.values.size(), TenantId());
    Ids<ValueIndex, bool> read(body_.values.size());
    for (const Node& node : body_.nodes) {
      for (const ValueIndex v : node.inputs) {
        if (v != kNone) read[root_[v]] = true;
      }
      for (const Tie& t : node.ties) read[t.into] = true;
    }
    for (const ValueIndex v : body_.results) {
      if (v != kNone) read[root_[v]] = true;
    }
    for (const ValueIndex v : body_.values.ids()) {
      const BodyValue& value = body_.values[v];
      using Source = BodyValue::Source;
      if (value.source == Source::kParam) {
        add_tenant(v, {}, {.location = Block::Location::kParam, .index = value.index});
      } else if (value.source == Source::kVariable) {
        add_tenant(v, {}, {.location = Block::Location::kVariable, .index = value.index});
      } else if (value.source == Source::kConstant && read[v]) {
        add_tenant(v, {}, {.location = Block::Location::kConstant, .index = value.index});
      }
    }
    for (const NodeId n : body_.nodes.ids()) {
      const Node& node = body_.nodes[n];
      if (node.is<Node::View>()) {
        const ValueIndex out = node.outputs[0];
        out_.tenant_of[out] = out_.tenant_of[root_[out]];
        continue;
      }
      for (const ValueIndex v : node.outputs) {
        if (v != kNone) add_tenant(v, n, {});
      }
      if (const auto* loop = node.as<Node::Loop>()) make_rings(node, *loop);
    }
  }

  // Puts the first and the last values of each rotation of a loop into one ring.
  void make_rings(const Node& node, const Node::Loop& loop) {
    for (const Rotation& rotation : rotations_of(loop)) {
      const BlockId ring = out_.tenant(at(node.inputs, rotation.carried[0])).block;
      const auto put = [&](ValueIndex v, int32_t slot) {
        Tenant& tenant = tenant_of(v);
        if (tenant.block != ring) out_.join(tenant.block, ring);
        tenant.slot = slot;
      };
      for (size_t i = 0; i < rotation.carried.size(); ++i) {
        const int32_t k = rotation.carried[i];
        const int32_t first = rotation.first_slot(i);
        put(at(node.inputs, k), first);
        put(at(node.outputs, k), rotation.after(first, loop.trips));
      }
      if (rotation.slots > 1) out_.blocks[ring].ring = rotation.slots;
    }
  }

  void apply_ties() {
    for (const Node& node : body_.nodes) {
      for (const Tie& t : node.ties) {
        Tenant& out = tenant_of(at(node.outputs, t.output));
        const Tenant& into = tenant_of(t.into);
        out.slot = into.slot;
        if (out.block == into.block) continue;
        out_.join(out.block, into.block);
      }
    }
    // Bytes that a node overwrites stay in use until that node.
    for (const NodeId n : body_.nodes.ids()) {
      for (const Tie& t : body_.nodes[n].ties) {
        Tenant& into = tenant_of(t.into);
        into.end = std::max(into.end, n);
      }
    }
  }

  void place_results() {
    for (size_t r = 0; r < body_.results.size(); ++r) {
      if (body_.results[r] == kNone) continue;
      Block& block = out_.blocks[out_.tenant(body_.results[r]).block];
      SLUICE_CHECK(block.location == Block::Location::kFrame && block.ring == 0);
      block.location = Block::Location::kResult;
      block.index = static_cast<int32_t>(r);
    }
  }

  Tenant& tenant_of(ValueIndex v) { return out_.tenants[out_.tenant_of[v]]; }

  Body& body_;
  Ids<NodeId, KernelChoice>& choices_;
  const Target& target_;
  const FirstValues first_values_;
  Storage out_;
  Ids<ValueIndex, NodeId> last_;
  Ids<ValueIndex, ValueIndex> root_;
};

class Reuser {
 public:
  Reuser(const Body& body, const Ids<NodeId, KernelChoice>& choices, Storage& storage)
      : body_(body), choices_(choices), out_(storage) {}

  int64_t run() {
    for (const NodeId n : body_.nodes.ids()) {
      for (const auto& [in, out] : choices_[n].may_coincide) try_reuse(n, in, out);
    }
    return reused_;
  }

 private:
  void try_reuse(NodeId n, int in, int out) {
    const Node& node = body_.nodes[n];
    const ValueIndex source = at(node.inputs, in);
    if (source == kNone) return;
    const TenantId c = out_.tenant_of[source];
    const Tenant& old = out_.tenants[c];
    if (at(node.outputs, out) == kNone) return;
    const Tenant& made = out_.tenant(at(node.outputs, out));
    if (old.end != n || old.block == made.block) return;
    const Block& from = out_.blocks[old.block];
    const Block& to = out_.blocks[made.block];
    const bool movable = from.location == Block::Location::kFrame && from.ring == 0;
    const bool free_target = (to.location == Block::Location::kFrame && to.ring == 0) ||
                             to.location == Block::Location::kResult;
    if (!movable || !free_target || from.bytes != to.bytes) return;
    for (const TenantId other : from.tenants) {
      const Tenant& there = out_.tenants[other];
      if (there.end > n || there.begin >= n) return;
    }
    for (const TenantId other : to.tenants) {
      if (out_.tenants[other].begin < n) return;
    }
    // All operands with the same bytes must be allowed to coincide with this output.
    const auto& pairs = choices_[n].may_coincide;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone || out_.tenant_of[node.inputs[i]] != c) continue;
      if (std::find(pairs.begin(), pairs.end(), std::pair<int, int>(static_cast<int>(i), out)) ==
          pairs.end())
        return;
    }
    out_.join(old.block, made.block);
    ++reused_;
  }

  const Body& body_;
  const Ids<NodeId, KernelChoice>& choices_;
  Storage& out_;
  int64_t reused_ = 0;
};

// The maximum number of bytes of the frame that are live at one node.
int64_t max_bytes(const Storage& storage) {
  std::map<int32_t, int64_t> changes;  // Indexed by node.
  for (const Block& b : storage.blocks) {
    if (b.location != Block::Location::kFrame || b.tenants.empty()) continue;
    NodeId begin = kNever, end(0);
    for (const TenantId t : b.tenants) {
      begin = std::min(begin, storage.tenants[t].begin);
      end = std::max(end, storage.tenants[t].end);
    }
    const int64_t bytes = b.bytes * std::max(b.ring, 1);
    changes[begin] += bytes;
    changes[end == kNever ? kNever : end + 1] -= bytes;
  }
  int64_t now = 0, max = 0;
  for (const auto& [node, change] : changes) max = std::max(max, now += change);
  return max;
}

}  // namespace

void Storage::join(BlockId from, BlockId into) {
  Block& a = blocks[from];
  Block& b = blocks[into];
  for (const TenantId t : a.tenants) tenants[t].block = into;
  b.tenants.insert(b.tenants.end(), a.tenants.begin(), a.tenants.end());
  a.tenants.clear();
}

Storage assign_storage(Body& body, Ids<NodeId, KernelChoice>& choices, const Target& target) {
  const bool loops = std::any_of(body.nodes.begin(), body.nodes.end(),
                                 [](const Node& node) { return node.carried() > 0; });
  if (!loops) return Assigner(body, choices, target, FirstValues::kInRing).run();
  Body copied = body;
  Ids<NodeId, KernelChoice> copied_choices = choices;
  Storage storage = Assigner(body, choices, target, FirstValues::kInRing).run();
  Storage copies = Assigner(copied, copied_choices, target, FirstValues::kCopied).run();
  if (max_bytes(copies) >= max_bytes(storage)) return storage;
  body = std::move(copied);
  choices = std::move(copied_choices);
  return copies;
}

int64_t reuse_dying_operands(const Body& body, const Ids<NodeId, KernelChoice>& choices,
                             Storage& storage) {
  return Reuser(body, choices, storage).run();
}

}  // namespace sluice::compiler
