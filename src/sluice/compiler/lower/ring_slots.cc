#include "sluice/compiler/lower/ring_slots.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::compiler {
namespace {

/// Nodes [begin, end] during which bytes are in use.
struct Span {
  NodeId begin;
  NodeId end;
  bool overlaps(const Span& o) const { return begin <= o.end && o.begin <= end; }
};

class Filler {
 public:
  Filler(const Body& body, Storage& storage)
      : body_(body), out_(storage), carried_(storage.blocks.size()) {}

  int64_t run() {
    count_bytes();
    for (const Node& node : body_.nodes) {
      for (size_t k = 0; k < node.carried(); ++k) {
        for (const ValueIndex v : {node.inputs[k], node.outputs[k]}) {
          if (v != kNone) carried_[out_.tenant(v).block] = true;
        }
      }
    }
    for (const NodeId n : body_.nodes.ids()) fill(n);
    return moved_;
  }

 private:
  Block& block(BlockId b) { return out_.blocks[b]; }

  Span span_of(const Block& b) const {
    Span span{NodeId(INT32_MAX), NodeId()};
    for (const TenantId t : b.tenants) {
      const Tenant& tenant = out_.tenants[t];
      span = {std::min(span.begin, tenant.begin), std::max(span.end, tenant.end)};
    }
    return span;
  }
  std::string_view name_of(const Block& b) const {
    const Tenant& first = out_.tenants[b.tenants.front()];
    return body_.value(first.root).tensor;
  }
  static int64_t bytes_of(const Block& b) { return b.bytes * std::max(b.ring, 1); }
  static bool in_frame(const Block& b) {
    return b.location == Block::Location::kFrame && !b.tenants.empty();
  }
  void add(const Span& span, int64_t bytes) {
    for (NodeId n = span.begin; n <= span.end; ++n) in_use_[n] += bytes;
  }

  // Counts the bytes of the frame that are live at each node, and their maximum.
  void count_bytes() {
    in_use_.assign(body_.nodes.size() + 1, 0);
    for (const Block& b : out_.blocks) {
      if (in_frame(b)) add(span_of(b), bytes_of(b));
    }
    max_ = *std::max_element(in_use_.begin(), in_use_.end());
  }

  // Fills the rings of a loop, from the blocks next to the loop on.
  void fill(NodeId loop) {
    const Node& node = body_.nodes[loop];
    for (size_t k = 0; k < node.carried(); ++k) {
      const BlockId ring = out_.tenant(node.inputs[k]).block;
      if (block(ring).ring < 2 || std::find(done_.begin(), done_.end(), ring) != done_.end())
        continue;
      done_.push_back(ring);
      std::vector<std::pair<int32_t, BlockId>> guests;  // Distance from the loop, and the block.
      for (const BlockId b : out_.blocks.ids()) {
        const Block& guest = block(b);
        if (!in_frame(guest) || carried_[b] || guest.ring > 0 || guest.bytes != block(ring).bytes ||
            name_of(guest) != name_of(block(ring)))
          continue;
        const Span span = span_of(guest);
        if (!span.overlaps({loop, loop}))
          guests.emplace_back(span.end < loop ? loop - span.end : span.begin - loop, b);
      }
      std::sort(guests.begin(), guests.end());
      for (const auto& [distance, guest] : guests) moved_ += try_slots(guest, ring);
    }
  }

  // Moves a block into a free slot. Returns whether there was one.
  bool try_slots(BlockId guest, BlockId ring) {
    const Span span = span_of(block(guest));
    for (int32_t slot = 0; slot < block(ring).ring; ++slot) {
      const auto& tenants = block(ring).tenants;
      const bool taken = std::any_of(tenants.begin(), tenants.end(), [&](TenantId t) {
        const Tenant& there = out_.tenants[t];
        return there.slot == slot && span.overlaps({there.begin, there.end});
      });
      if (taken) continue;
      if (!stretch(span, block(guest).bytes, ring)) return false;
      for (const TenantId t : block(guest).tenants) out_.tenants[t].slot = slot;
      out_.join(guest, ring);
      return true;
    }
    return false;
  }

  // Counts the bytes in use if a block moves into the ring. The ring may then be in use for longer.
  // Returns false, and changes nothing, if the maximum number of live bytes would grow.
  bool stretch(const Span& span, int64_t bytes, BlockId ring) {
    const Span before = span_of(block(ring));
    const int64_t more = bytes_of(block(ring));
    const NodeId last_before(before.begin - 1), first_after(before.end + 1);
    const Span early{span.begin, std::min(span.end, last_before)};
    const Span gap_before{std::max(NodeId(span.end + 1), early.begin), last_before};
    const Span gap_after{first_after, NodeId(span.begin - 1)};
    const Span late{std::max(span.begin, first_after), span.end};
    const auto fits = [&](const Span& s, int64_t by) {
      for (NodeId n = s.begin; n <= s.end; ++n) {
        if (in_use_[n] + by > max_) return false;
      }
      return true;
    };
    if (!fits(early, more - bytes) || !fits(gap_before, more) || !fits(gap_after, more) ||
        !fits(late, more - bytes))
      return false;
    for (const Span& s : {early, gap_before, gap_after, late}) add(s, more);
    add(span, -bytes);
    return true;
  }

  const Body& body_;
  Storage& out_;
  Ids<BlockId, bool> carried_;   ///< Blocks of carried values.
  std::vector<BlockId> done_;    ///< Rings that have been filled.
  Ids<NodeId, int64_t> in_use_;  ///< Bytes of the frame in use at each node, and at the end.
  int64_t max_ = 0;
  int64_t moved_ = 0;
};

}  // namespace

int64_t fill_ring_slots(const Body& body, Storage& storage) { return Filler(body, storage).run(); }

}  // namespace sluice::compiler
