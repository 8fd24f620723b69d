#include "sluice/compiler/lower/storage.h"

#include <algorithm>
#include <limits>

#include "sluice/base/checked.h"

namespace sluice::compiler {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

class Assigner {
 public:
  Assigner(Body& body, std::vector<KernelChoice>& choices, const Target& target)
      : body_(body), choices_(choices), target_(target) {}

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
  // Adds copies before each loop that move its carried inputs into slot 0 of their rings.
  void add_ring_copies() {
    std::vector<Node> nodes;
    std::vector<KernelChoice> choices;
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      Node& node = body_.nodes[i];
      for (int32_t k = 0; k < node.carried(); ++k) {
        Node copy = make_copy(body_, node.inputs[static_cast<size_t>(k)], "'carried", node);
        node.inputs[static_cast<size_t>(k)] = copy.outputs[0];
        nodes.push_back(std::move(copy));
        choices.emplace_back();
      }
      nodes.push_back(std::move(node));
      choices.push_back(std::move(choices_[i]));
    }
    body_.nodes = std::move(nodes);
    choices_ = std::move(choices);
  }

  // A result is written at the caller's address. It becomes a copy if its bytes have another place,
  // if it is overwritten, or if it is already returned.
  void add_result_copies() {
    std::vector<bool> taken(body_.values.size(), false);
    std::vector<ValueIndex> source(body_.values.size(), kNone);  // Input of each view.
    std::vector<bool> homed(body_.values.size(),
                            false);  // Stored outside the frame or in a ring.
    std::vector<bool> tied(body_.values.size(), false);
    for (size_t v = 0; v < body_.values.size(); ++v)
      homed[v] = body_.values[v].source != BodyValue::Source::kNode;
    for (const Node& node : body_.nodes) {
      if (node.is<Node::View>()) source[static_cast<size_t>(node.outputs[0])] = node.inputs[0];
      for (const Tie& t : node.ties) {
        const ValueIndex out = node.outputs[static_cast<size_t>(t.output)];
        tied[static_cast<size_t>(t.into)] = true;
        if (homed[static_cast<size_t>(t.into)]) homed[static_cast<size_t>(out)] = true;
      }
      if (node.is<Node::View>() && homed[static_cast<size_t>(node.inputs[0])]) {
        homed[static_cast<size_t>(node.outputs[0])] = true;
      }
      for (int32_t k = 0; k < node.carried(); ++k)  // Carried results are in rings.
        homed[static_cast<size_t>(node.outputs[static_cast<size_t>(k)])] = true;
    }
    for (ValueIndex& result : body_.results) {
      if (result == kNone) continue;
      ValueIndex root = result;
      while (source[static_cast<size_t>(root)] != kNone) root = source[static_cast<size_t>(root)];
      if (!homed[static_cast<size_t>(root)] && !taken[static_cast<size_t>(root)] &&
          !tied[static_cast<size_t>(root)]) {
        taken[static_cast<size_t>(root)] = true;
        continue;
      }
      Node at;
      at.device = body_.device;
      at.where = "result of " + body_.name;
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

  // Turns views that cannot share the bytes of their source into copies.
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
                   {.place = Block::Place::kParam, .index = value.index});
      } else if (value.source == Source::kVariable) {
        add_tenant(static_cast<ValueIndex>(v), -1,
                   {.place = Block::Place::kVariable, .index = value.index});
      } else if (value.source == Source::kConstant && read[v]) {
        add_tenant(static_cast<ValueIndex>(v), -1,
                   {.place = Block::Place::kConstant, .index = value.index});
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

  // Puts the first and the last carried value k into one ring: the first into slot 0, the last into
  // slot trips mod 2.
  void make_rings(const Node& node, const Node::Loop& loop) {
    for (int32_t k = 0; k < loop.carried; ++k) {
      const int32_t first =
          out_.tenant_of[static_cast<size_t>(node.inputs[static_cast<size_t>(k)])];
      const int32_t final =
          out_.tenant_of[static_cast<size_t>(node.outputs[static_cast<size_t>(k)])];
      out_.join(out_.tenants[static_cast<size_t>(final)].block,
                out_.tenants[static_cast<size_t>(first)].block);
      out_.blocks[static_cast<size_t>(out_.tenants[static_cast<size_t>(first)].block)].ring = 2;
      out_.tenants[static_cast<size_t>(final)].slot = static_cast<int32_t>(loop.trips % 2);
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
      SLUICE_CHECK(block.place == Block::Place::kFrame && block.ring == 0);
      block.place = Block::Place::kResult;
      block.index = static_cast<int32_t>(r);
    }
  }

  Body& body_;
  std::vector<KernelChoice>& choices_;
  const Target& target_;
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
    const bool movable = from.place == Block::Place::kFrame && from.ring == 0;
    const bool free_target =
        (to.place == Block::Place::kFrame && to.ring == 0) || to.place == Block::Place::kResult;
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

}  // namespace

void Storage::join(int32_t from, int32_t into) {
  Block& a = blocks[static_cast<size_t>(from)];
  Block& b = blocks[static_cast<size_t>(into)];
  for (const int32_t c : a.tenants) tenants[static_cast<size_t>(c)].block = into;
  b.tenants.insert(b.tenants.end(), a.tenants.begin(), a.tenants.end());
  a.tenants.clear();
}

Storage assign_storage(Body& body, std::vector<KernelChoice>& choices, const Target& target) {
  return Assigner(body, choices, target).run();
}

int64_t reuse_dying_operands(const Body& body, const std::vector<KernelChoice>& choices,
                             Storage& storage) {
  return Reuser(body, choices, storage).run();
}

}  // namespace sluice::compiler
