#include "sluice/compiler/passes/transfers.h"

#include <algorithm>

#include "sluice/compiler/analysis/indices.h"

namespace sluice::compiler {
namespace {

// With one I/O queue, all transfers use queue 1.
constexpr int32_t kLoadQueue = 1, kStoreQueue = 2, kPrefetchQueue = 3;

using Transfer = Node::Transfer;
using SegmentId = Id<struct SegmentTag>;

bool is_stream(const Transfer& t) {
  return t.effect.kind == Effect::Action::kStreamRead ||
         t.effect.kind == Effect::Action::kStreamWrite;
}
bool is_load(const Transfer& t) {
  return t.effect.kind == Effect::Action::kStreamRead ||
         t.effect.kind == Effect::Action::kRemoteLoad;
}
// Whether no transfer may be under way at a node: its callees may run or not.
bool may_skip(const Node& n) {
  return n.is<Node::Branch>() || (n.is<Node::Loop>() && !n.as<Node::Loop>()->conditions.empty());
}
bool is_overlapped(const Node& n) {
  return n.is<Transfer>() && n.as<Transfer>()->effect.io == IoMode::kIoOverlapped;
}

bool same_order(const Transfer& a, const Transfer& b) {
  if (is_stream(a) != is_stream(b) || a.effect.id != b.effect.id) return false;
  if (is_stream(a)) return true;
  if (is_load(a) && is_load(b)) return false;
  const auto x = entry_of(a);
  const auto y = entry_of(b);
  return !x || !y || !differ(*x, *y);
}

// Whether `other` has effects outside the device that must keep their order with the transfer.
bool conflicts(const Transfer& transfer, const Node& other, const FactTable& facts) {
  if (const auto* t = other.as<Transfer>()) return same_order(transfer, *t);
  bool found = false;
  for_each_callee(other, [&](BodyId callee) {
    const BodyFacts& f = facts[callee];
    const int32_t id = transfer.effect.id;
    if (is_stream(transfer)) {
      const Sequence stream{Sequence::Of::kStream, id};
      found |= std::any_of(f.sequences.begin(), f.sequences.end(),
                           [&](const SequenceUse& use) { return use.sequence == stream; });
    } else {
      found |= f.stores_to.contains(id) || (!is_load(transfer) && f.loads_from.contains(id));
    }
  });
  return found;
}

class Scheduler {
 public:
  Scheduler(Body& body, const FactTable& facts, int io_queues)
      : body_(body),
        facts_(facts),
        io_queues_(io_queues),
        end_(body.nodes.end_id()),
        before_(body.nodes.size() + 1) {}

  int64_t run() {
    find_roots();
    find_segments();
    for (const NodeId n : body_.nodes.ids()) {
      position_.push_back(n);
      auto* t = body_.nodes[n].as<Transfer>();
      if (t == nullptr || t->effect.io == IoMode::kCompute) continue;
      require(io_queues_ > 0, "io queues: {} in graph {} requires at least 1, got 0 (made at {})",
              node(n).def->type, body_.name, node(n).where());
      ++moved_;
      if (is_overlapped(node(n))) position_[n] = earliest_issue(n);
      t->queue = queue_of(n);
      before_[position_[n]].issues.push_back(n);
    }
    for (const NodeId n : body_.nodes.ids()) {
      if (queue(n) == 0) continue;
      before_[is_overlapped(node(n)) ? latest_wait(n) : after(n)].waits.push_back(n);
    }
    if (moved_ > 0) reorder();
    return moved_;
  }

 private:
  // Waits and issues that are added before a node. Waits come first, so that an issue can use the
  // bytes of an ended transfer.
  struct Before {
    std::vector<NodeId> waits;
    std::vector<NodeId> issues;
  };

  const Node& node(NodeId n) const { return body_.nodes[n]; }
  const Transfer& transfer(NodeId n) const { return *node(n).as<Transfer>(); }
  int32_t queue(NodeId n) const { return node(n).is<Transfer>() ? transfer(n).queue : 0; }
  static NodeId after(NodeId n) { return ++n; }

  int32_t queue_of(NodeId n) const {
    const bool load = is_load(transfer(n));
    if (io_queues_ == 1 || (load && is_stream(transfer(n)))) return kLoadQueue;
    if (!load) return kStoreQueue;
    return segment_[position_[n]] < segment_[n] ? kPrefetchQueue : kLoadQueue;
  }

  // A view may share the bytes of its source. Accesses to either count as accesses to the root.
  void find_roots() {
    root_.resize(body_.values.size());
    for (const ValueIndex v : root_.ids()) root_[v] = v;
    for (const Node& n : body_.nodes) {
      if (n.is<Node::View>()) root_[n.outputs[0]] = root_[n.inputs[0]];
    }
  }

  bool shows(ValueIndex v, ValueIndex root) const { return v != kNone && root_[v] == root; }
  bool overwrites(const Node& n, ValueIndex root) const {
    return std::any_of(n.ties.begin(), n.ties.end(),
                       [&](const Tie& t) { return shows(t.into, root); });
  }
  bool reads(const Node& n, ValueIndex root) const {
    return std::any_of(n.inputs.begin(), n.inputs.end(),
                       [&](ValueIndex v) { return shows(v, root); });
  }

  bool makes(const Node& n, ValueIndex root) const {
    return std::any_of(n.outputs.begin(), n.outputs.end(),
                       [&](ValueIndex v) { return shows(v, root); });
  }

  static bool computes(const Node& n) {
    // Kernels with a scalar output are mostly index arithmetic.
    if (n.is<Node::Kernel>()) return n.outputs.empty() || n.out_specs[0].elements() > 1;
    return !n.is<Node::View>() && !n.is<Node::Index>() && !n.is<Transfer>();
  }

  // Divides the body into segments, each with loads, computation and stores in this order.
  void find_segments() {
    bool computed = false;
    bool stored = false;
    for (const NodeId n : body_.nodes.ids()) {
      const bool load = is_overlapped(node(n)) && is_load(transfer(n));
      const bool begins = (load && (computed || stored)) || (computes(node(n)) && stored);
      if (begins) computed = stored = false;
      if (begins || segment_begin_.empty()) segment_begin_.push_back(n);
      computed |= computes(node(n));
      stored |= is_overlapped(node(n)) && !load;
      segment_.push_back(SegmentId(segment_begin_.size() - 1));
    }
  }

  // The first node of the segment that precedes `segment` by `count`, or of the first segment.
  NodeId begin_of_earlier(SegmentId segment, int32_t count) const {
    return segment_begin_[SegmentId(std::max(segment - count, 0))];
  }

  // The node before which a transfer is issued. A store is issued at its own position, right after
  // its bytes are computed.
  NodeId earliest_issue(NodeId n) const {
    const Transfer& load = transfer(n);
    if (!is_load(load)) return n;
    NodeId at = n;
    while (at > begin_of_earlier(segment_[n], 1)) {
      const NodeId previous(at - 1);
      const Node& other = node(previous);
      if (may_skip(other) || must_precede(other, node(n))) break;
      if (!is_overlapped(other) && conflicts(load, other, facts_)) break;
      at = previous;
    }
    // A queue runs transfers in the order of issue, so the load can follow a conflicting transfer
    // without a wait. Across queues a wait would be needed. Then the load stays, so that this wait
    // does not come earlier.
    for (NodeId k = begin_of_earlier(segment_[n], 2); k < n; ++k) {
      if (!is_overlapped(node(k)) || !conflicts(load, node(k), facts_)) continue;
      if (io_queues_ > 1 && !is_load(transfer(k))) return n;
      at = std::max(at, position_[k]);
    }
    return at;
  }

  // Whether `other` must come before the load: it computes or overwrites an operand or the target
  // of the load, or reads the target. The target is the value that the load overwrites.
  bool must_precede(const Node& other, const Node& load) const {
    const auto root = [&](ValueIndex v) { return root_[v]; };
    return std::any_of(
               load.inputs.begin(), load.inputs.end(),
               [&](ValueIndex v) { return makes(other, root(v)) || overwrites(other, root(v)); }) ||
           std::any_of(load.ties.begin(), load.ties.end(), [&](const Tie& t) {
             return makes(other, root(t.into)) || overwrites(other, root(t.into)) ||
                    reads(other, root(t.into));
           });
  }

  // The node before which the transfer must have ended.
  NodeId latest_wait(NodeId n) const {
    const Transfer& own = transfer(n);
    const bool load = is_load(own);
    const ValueIndex root = root_[load ? node(n).outputs[0] : node(n).inputs[0]];
    NodeId at = end_;
    for (NodeId k = after(n); k < end_; ++k) {
      // Loads are issued no earlier than the segment before their own, so no later node can lower
      // `at`.
      if (at <= begin_of_earlier(segment_[k], 1)) break;
      const Node& other = node(k);
      const bool touches = overwrites(other, root) || (load && reads(other, root));
      const bool late = !load && segment_[k] > segment_[n] + 1;
      const bool orderly = is_overlapped(other) && queue(k) == own.queue;
      const bool conflict = !orderly && conflicts(own, other, facts_);
      if (touches || (conflict && is_overlapped(other))) at = std::min(at, position_[k]);
      if (late || conflict || may_skip(other)) at = std::min(at, k);
    }
    return at;
  }

  void reorder() {
    Ids<NodeId, Node> out;
    for (const NodeId n : before_.ids()) {
      for (const NodeId t : before_[n].waits) out.push_back(wait_for(node(t)));
      for (const NodeId t : before_[n].issues) out.push_back(node(t));
      if (n < end_ && queue(n) == 0) out.push_back(std::move(body_.nodes[n]));
    }
    body_.nodes = std::move(out);
  }

  static Node wait_for(const Node& node) {
    const Transfer& transfer = *node.as<Transfer>();
    const bool load = is_load(transfer);
    Node wait;
    wait.what = Node::Wait{transfer.queue, transfer.token};
    wait.def = node.def;
    wait.inputs = {load ? node.outputs[0] : node.inputs[0]};
    wait.in_specs = {load ? node.out_specs[0] : node.in_specs[0]};
    wait.origin = node.origin;
    wait.provenance = node.provenance;
    wait.device = node.device;
    return wait;
  }

  Body& body_;
  const FactTable& facts_;
  const int io_queues_;
  const NodeId end_;
  Ids<NodeId, Before> before_;
  Ids<ValueIndex, ValueIndex> root_;
  Ids<NodeId, NodeId> position_;          // For each node: the node before which it is inserted.
  Ids<NodeId, SegmentId> segment_;        // Segment of each node.
  Ids<SegmentId, NodeId> segment_begin_;  // First node of each segment.
  int64_t moved_ = 0;
};

}  // namespace

int64_t schedule_transfers(Body& body, const FactTable& facts, int io_queues) {
  return Scheduler(body, facts, io_queues).run();
}

}  // namespace sluice::compiler
