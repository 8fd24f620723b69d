#include "sluice/compiler/lower/storage.h"

#include <algorithm>
#include <limits>
#include <map>

#include "sluice/base/checked.h"

namespace sluice::compiler {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

// The memory in which the initial values of a loop's carried inputs are computed. Initial values of
// rotations are always computed in the ring, which also has slots for the values of the ramps
// (ring_slots.h).
enum class FirstValues { kInRing, kCopied };

class Assigner {
 public:
  Assigner(Body& body, std::vector<KernelChoice>& choices, const Target& target,
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
    std::vector<int32_t> last, tied_at;
    find_uses(last, tied_at);
    const std::vector<bool> fixed = find_fixed();
    std::vector<Node> nodes;
    std::vector<KernelChoice> choices;
    for (int32_t i = 0; i < node_count(); ++i) {
      Node& node = body_.nodes[static_cast<size_t>(i)];
      const auto* loop = node.as<Node::Loop>();
      const bool in_ring =
          first_values_ == FirstValues::kInRing || (loop != nullptr && !loop->rotates.empty());
      for (int32_t k = 0; k < node.carried(); ++k) {
        ValueIndex& input = node.inputs[static_cast<size_t>(k)];
        // The loop overwrites the ring, so it must be the only reader from now on.
        const bool once = std::count(node.inputs.begin(), node.inputs.end(), input) == 1;
        const bool free = once && !fixed[static_cast<size_t>(input)];
        if (in_ring && free && last[static_cast<size_t>(input)] == i) continue;
        Node copy = make_copy(body_, input, "'carried", node);
        input = copy.outputs[0];
        nodes.push_back(std::move(copy));
        choices.emplace_back();
      }
      nodes.push_back(std::move(node));
      choices.push_back(std::move(choices_[static_cast<size_t>(i)]));
    }
    body_.nodes = std::move(nodes);
    choices_ = std::move(choices);
  }

  // Finds the values that are not stored in the frame, or that share their bytes with other values.
  std::vector<bool> find_fixed() const {
    std::vector<bool> fixed(body_.values.size(), false);
    const auto fix = [&](ValueIndex v) {
      if (v != kNone) fixed[static_cast<size_t>(v)] = true;
    };
    for (size_t v = 0; v < body_.values.size(); ++v)
      fixed[v] = body_.values[v].source != BodyValue::Source::kNode;
    for (const Node& node : body_.nodes) {
      if (node.is<Node::View>()) {
        fix(node.inputs[0]);
        fix(node.outputs[0]);
      }
      for (const Tie& t : node.ties) {
        fix(t.into);
        fix(node.outputs[static_cast<size_t>(t.output)]);
      }
      for (int32_t k = 0; k < node.carried(); ++k) fix(node.outputs[static_cast<size_t>(k)]);
    }
    return fixed;
  }

  // A result is written at the caller's address. It becomes a copy if its bytes are stored
  // elsewhere, if it is overwritten, or if it is already returned.
  void add_result_copies() {
    std::vector<bool> taken(body_.values.size(), false);
    std::vector<ValueIndex> source(body_.values.size(), kNone);  // Input of each view.
    std::vector<bool> is_external(body_.values.size(),
                                  false);  // Stored outside the frame or in a ring.
    std::vector<bool> tied(body_.values.size(), false);
    for (size_t v = 0; v < body_.values.size(); ++v)
      is_external[v] = body_.values[v].source != BodyValue::Source::kNode;
    for (const Node& node : body_.nodes) {
      if (node.is<Node::View>()) source[static_cast<size_t>(node.outputs[0])] = node.inputs[0];
      for (const Tie& t : node.ties) {
        const ValueIndex out = node.outputs[static_cast<size_t>(t.output)];
        tied[static_cast<size_t>(t.into)] = true;
        if (is_external[static_cast<size_t>(t.into)]) is_external[static_cast<size_t>(out)] = true;
      }
      if (node.is<Node::View>() && is_external[static_cast<size_t>(node.inputs[0])]) {
        is_external[static_cast<size_t>(node.outputs[0])] = true;
      }
      for (int32_t k = 0; k < node.carried(); ++k)  // Carried results are in rings.
        is_external[static_cast<size_t>(node.outputs[static_cast<size_t>(k)])] = true;
    }
    for (ValueIndex& result : body_.results) {
      if (result == kNone) continue;
      ValueIndex root = result;
      while (source[static_cast<size_t>(root)] != kNone) root = source[static_cast<size_t>(root)];
      if (!is_external[static_cast<size_t>(root)] && !taken[static_cast<size_t>(root)] &&
          !tied[static_cast<size_t>(root)]) {
        taken[static_cast<size_t>(root)] = true;
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

  int32_t node_count() const { return static_cast<int32_t>(body_.nodes.size()); }

  // For each value, finds the last node that reads it without a view, and the node that overwrites
  // it.
  void find_uses(std::vector<int32_t>& last, std::vector<int32_t>& tied_at) const {
    last.assign(body_.values.size(), -1);
    tied_at.assign(body_.values.size(), kNever);
    for (int32_t n = 0; n < node_count(); ++n) {
      const Node& node = body_.nodes[static_cast<size_t>(n)];
      if (!node.is<Node::View>()) {
        for (const ValueIndex v : node.inputs) {
          if (v != kNone) last[static_cast<size_t>(v)] = n;
        }
      }
      for (const Tie& t : node.ties) tied_at[static_cast<size_t>(t.into)] = n;
    }
    for (const ValueIndex v : body_.results) {
      if (v != kNone) last[static_cast<size_t>(v)] = node_count();
    }
    for (const BodyParam& p : body_.params) {
      if (p.out != kNone) last[static_cast<size_t>(p.out)] = node_count();
    }
    for (const auto& [variable, v] : body_.variables) last[static_cast<size_t>(v)] = node_count();
  }

  // Converts views that cannot share the bytes of their source into copies.
  void resolve_views() {
    std::vector<int32_t> tied_at;
    find_uses(last_, tied_at);
    for (int32_t n = node_count(); n-- > 0;) {
      const Node& node = body_.nodes[static_cast<size_t>(n)];
      if (!node.is<Node::View>()) continue;
      int32_t& source = last_[static_cast<size_t>(node.inputs[0])];
      source = std::max(source, std::max(n, last_[static_cast<size_t>(node.outputs[0])]));
    }
    root_.resize(body_.values.size());
    for (size_t v = 0; v < root_.size(); ++v) root_[v] = static_cast<ValueIndex>(v);
    for (Node& node : body_.nodes) {
      if (!node.is<Node::View>()) continue;
      const auto out = static_cast<size_t>(node.outputs[0]);
      const ValueIndex root = root_[static_cast<size_t>(node.inputs[0])];
      const bool source_lives = last_[out] < tied_at[static_cast<size_t>(root)];
      if (source_lives && tied_at[out] == kNever) {
        root_[out] = root;
      } else {
        node.what = Node::Copy{};
      }
    }
    // The remaining views extend the life of their root.
    find_uses(last_, tied_at);
    for (int32_t n = node_count(); n-- > 0;) {
      const Node& node = body_.nodes[static_cast<size_t>(n)];
      if (!node.is<Node::View>()) continue;
      int32_t& source = last_[static_cast<size_t>(root_[static_cast<size_t>(node.outputs[0])])];
      source = std::max(source, last_[static_cast<size_t>(node.outputs[0])]);
    }
  }

  int32_t add_tenant(ValueIndex root, int32_t begin, Block block) {
    const auto c = static_cast<int32_t>(out_.tenants.size());
    const auto b = static_cast<int32_t>(out_.blocks.size());
    block.tenants = {c};
    block.bytes = target_.buffer_bytes(body_.value(root).spec, body_.value(root).layout);
    out_.tenants.push_back({root, b, begin, std::max(begin, last_[static_cast<size_t>(root)]), 0});
    out_.blocks.push_back(std::move(block));
    out_.tenant_of[static_cast<size_t>(root)] = c;
    return c;
  }

  void make_tenants() {
    out_.tenant_of.assign(body_.values.size(), -1);
    std::vector<bool> read(body_.values.size(), false);
    for (const Node& node : body_.nodes) {
      for (const ValueIndex v : node.inputs) {
        if (v != kNone) read[static_cast<size_t>(root_[static_cast<size_t>(v)])] = true;
      }
      for (const Tie& t : node.ties) read[static_cast<size_t>(t.into)] = true;
    }
    for (const ValueIndex v : body_.results) {
      if (v != kNone) read[static_cast<size_t>(root_[static_cast<size_t>(v)])] = true;
    }
    for (size_t v = 0; v < body_.values.size(); ++v) {
      const BodyValue& value = body_.values[v];
      using Source = BodyValue::Source;
      if (value.source == Source::kParam) {
        add_tenant(static_cast<ValueIndex>(v), -1,
                   {.location = Block::Location::kParam, .index = value.index});
      } else if (value.source == Source::kVariable) {
        add_tenant(static_cast<ValueIndex>(v), -1,
                   {.location = Block::Location::kVariable, .index = value.index});
      } else if (value.source == Source::kConstant && read[v]) {
        add_tenant(static_cast<ValueIndex>(v), -1,
                   {.location = Block::Location::kConstant, .index = value.index});
      }
    }
    for (int32_t n = 0; n < node_count(); ++n) {
      const Node& node = body_.nodes[static_cast<size_t>(n)];
      if (node.is<Node::View>()) {
        const auto out = static_cast<size_t>(node.outputs[0]);
        out_.tenant_of[out] = out_.tenant_of[static_cast<size_t>(root_[out])];
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
      const auto newest = static_cast<size_t>(rotation.carried[0]);
      const int32_t ring = out_.tenant(node.inputs[newest]).block;
      const auto put = [&](ValueIndex v, int32_t slot) {
        Tenant& tenant = out_.tenants[static_cast<size_t>(out_.tenant_of[static_cast<size_t>(v)])];
        if (tenant.block != ring) out_.join(tenant.block, ring);
        tenant.slot = slot;
      };
      for (size_t i = 0; i < rotation.carried.size(); ++i) {
        const auto k = static_cast<size_t>(rotation.carried[i]);
        const int32_t first = rotation.first_slot(i);
        put(node.inputs[k], first);
        put(node.outputs[k], rotation.after(first, loop.trips));
      }
      if (rotation.slots > 1) out_.blocks[static_cast<size_t>(ring)].ring = rotation.slots;
    }
  }

  void apply_ties() {
    for (const Node& node : body_.nodes) {
      for (const Tie& t : node.ties) {
        Tenant& out = out_.tenants[static_cast<size_t>(
            out_.tenant_of[static_cast<size_t>(node.outputs[static_cast<size_t>(t.output)])])];
        const Tenant& into =
            out_.tenants[static_cast<size_t>(out_.tenant_of[static_cast<size_t>(t.into)])];
        out.slot = into.slot;
        if (out.block == into.block) continue;
        out_.join(out.block, into.block);
      }
    }
    // Bytes that a node overwrites stay in use until that node.
    for (int32_t n = 0; n < node_count(); ++n) {
      for (const Tie& t : body_.nodes[static_cast<size_t>(n)].ties) {
        Tenant& into =
            out_.tenants[static_cast<size_t>(out_.tenant_of[static_cast<size_t>(t.into)])];
        into.end = std::max(into.end, n);
      }
    }
  }

  void place_results() {
    for (size_t r = 0; r < body_.results.size(); ++r) {
      if (body_.results[r] == kNone) continue;
      Block& block = out_.blocks[static_cast<size_t>(out_.tenant(body_.results[r]).block)];
      SLUICE_CHECK(block.location == Block::Location::kFrame && block.ring == 0);
      block.location = Block::Location::kResult;
      block.index = static_cast<int32_t>(r);
    }
  }

  Body& body_;
  std::vector<KernelChoice>& choices_;
  const Target& target_;
  const FirstValues first_values_;
  Storage out_;
  std::vector<int32_t> last_;
  std::vector<ValueIndex> root_;
};

class Reuser {
 public:
  Reuser(const Body& body, const std::vector<KernelChoice>& choices, Storage& storage)
      : body_(body), choices_(choices), out_(storage) {}

  int64_t run() {
    for (size_t n = 0; n < body_.nodes.size(); ++n) {
      for (const auto& [in, out] : choices_[n].may_coincide)
        try_reuse(body_.nodes[n], static_cast<int32_t>(n), in, out);
    }
    return reused_;
  }

 private:
  void try_reuse(const Node& node, int32_t n, int in, int out) {
    const ValueIndex source = node.inputs[static_cast<size_t>(in)];
    if (source == kNone) return;
    const int32_t c = out_.tenant_of[static_cast<size_t>(source)];
    const Tenant& old = out_.tenants[static_cast<size_t>(c)];
    if (node.outputs[static_cast<size_t>(out)] == kNone) return;
    const Tenant& made = out_.tenant(node.outputs[static_cast<size_t>(out)]);
    if (old.end != n || old.block == made.block) return;
    const Block& from = out_.blocks[static_cast<size_t>(old.block)];
    const Block& to = out_.blocks[static_cast<size_t>(made.block)];
    const bool movable = from.location == Block::Location::kFrame && from.ring == 0;
    const bool free_target = (to.location == Block::Location::kFrame && to.ring == 0) ||
                             to.location == Block::Location::kResult;
    if (!movable || !free_target || from.bytes != to.bytes) return;
    for (const int32_t other : from.tenants) {
      const Tenant& there = out_.tenants[static_cast<size_t>(other)];
      if (there.end > n || there.begin >= n) return;
    }
    for (const int32_t other : to.tenants) {
      if (out_.tenants[static_cast<size_t>(other)].begin < n) return;
    }
    // All operands with the same bytes must be allowed to coincide with this output.
    const auto& pairs = choices_[static_cast<size_t>(n)].may_coincide;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone || out_.tenant_of[static_cast<size_t>(node.inputs[i])] != c)
        continue;
      if (std::find(pairs.begin(), pairs.end(), std::pair<int, int>(static_cast<int>(i), out)) ==
          pairs.end())
        return;
    }
    out_.join(old.block, made.block);
    ++reused_;
  }

  const Body& body_;
  const std::vector<KernelChoice>& choices_;
  Storage& out_;
  int64_t reused_ = 0;
};

// The maximum number of bytes of the frame that are live at one node.
int64_t max_bytes(const Storage& storage) {
  std::map<int32_t, int64_t> changes;  // Indexed by node.
  for (const Block& b : storage.blocks) {
    if (b.location != Block::Location::kFrame || b.tenants.empty()) continue;
    int32_t begin = kNever, end = 0;
    for (const int32_t t : b.tenants) {
      begin = std::min(begin, storage.tenants[static_cast<size_t>(t)].begin);
      end = std::max(end, storage.tenants[static_cast<size_t>(t)].end);
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

void Storage::join(int32_t from, int32_t into) {
  Block& a = blocks[static_cast<size_t>(from)];
  Block& b = blocks[static_cast<size_t>(into)];
  for (const int32_t c : a.tenants) tenants[static_cast<size_t>(c)].block = into;
  b.tenants.insert(b.tenants.end(), a.tenants.begin(), a.tenants.end());
  a.tenants.clear();
}

Storage assign_storage(Body& body, std::vector<KernelChoice>& choices, const Target& target) {
  const bool loops = std::any_of(body.nodes.begin(), body.nodes.end(),
                                 [](const Node& node) { return node.carried() > 0; });
  if (!loops) return Assigner(body, choices, target, FirstValues::kInRing).run();
  Body copied = body;
  std::vector<KernelChoice> copied_choices = choices;
  Storage storage = Assigner(body, choices, target, FirstValues::kInRing).run();
  Storage copies = Assigner(copied, copied_choices, target, FirstValues::kCopied).run();
  if (max_bytes(copies) >= max_bytes(storage)) return storage;
  body = std::move(copied);
  choices = std::move(copied_choices);
  return copies;
}

int64_t reuse_dying_operands(const Body& body, const std::vector<KernelChoice>& choices,
                             Storage& storage) {
  return Reuser(body, choices, storage).run();
}

}  // namespace sluice::compiler
