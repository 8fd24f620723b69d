#include "sluice/compiler/schedule_transfers.h"

#include <algorithm>

#include "sluice/compiler/indices.h"

namespace sluice::compiler {
namespace {

// The last two are the first where there is one io queue.
constexpr int32_t kLoadQueue = 1, kStoreQueue = 2, kPrefetchQueue = 3;

bool is_stream(const Node& n) {
  return n.effect.kind == Effect::Kind::kStreamRead || n.effect.kind == Effect::Kind::kStreamWrite;
}
bool is_load(const Node& n) {
  return n.effect.kind == Effect::Kind::kStreamRead || n.effect.kind == Effect::Kind::kRemoteLoad;
}
bool is_stream_load(const Node& n) { return n.effect.kind == Effect::Kind::kStreamRead; }
bool is_overlapped(const Node& n) {
  return n.kind == Node::Kind::kTransfer && n.effect.io == IoMode::kIoOverlapped;
}

bool same_order(const Node& a, const Node& b) {
  if (is_stream(a) != is_stream(b) || a.effect.id != b.effect.id) return false;
  if (is_stream(a)) return true;
  if (is_load(a) && is_load(b)) return false;
  const auto x = entry_of(a);
  const auto y = entry_of(b);
  return !x || !y || !differ(*x, *y);
}

// Whether what `other` does outside the device must stay where it is, before or after the transfer.
bool conflicts(const Node& transfer, const Node& other, const FactTable& facts) {
  if (other.kind == Node::Kind::kTransfer) return same_order(transfer, other);
  return std::any_of(other.callees.begin(), other.callees.end(), [&](GraphId g) {
    const GraphFacts& f = facts[g];
    const int32_t id = transfer.effect.id;
    if (is_stream(transfer)) {
      const Sequence stream{Sequence::Of::kStream, id};
      return std::any_of(f.sequences.begin(), f.sequences.end(),
                         [&](const SequenceUse& use) { return use.sequence == stream; });
    }
    return f.stores_to.contains(id) || (!is_load(transfer) && f.loads_from.contains(id));
  });
}

class Scheduler {
 public:
  Scheduler(Body& body, const FactTable& facts, int io_queues)
      : body_(body),
        facts_(facts),
        io_queues_(io_queues),
        nodes_(body.nodes.size()),
        before_(nodes_ + 1) {}

  int64_t run() {
    find_roots();
    find_phases();
    for (size_t n = 0; n < nodes_; ++n) {
      place_.push_back(n);
      Node& node = body_.nodes[n];
      if (node.kind != Node::Kind::kTransfer) continue;
      if (node.effect.io == IoMode::kCompute) continue;
      require(io_queues_ > 0,
              "io queues: {} in graph {} is to run on one, the device has none (made at {})",
              node.def->type, body_.name, node.where);
      ++moved_;
      if (is_overlapped(node)) place_[n] = earliest_issue(n);
      node.queue = queue_of(n);
      before_[place_[n]].issues.push_back(n);
    }
    for (size_t n = 0; n < nodes_; ++n) {
      if (node(n).queue > 0)
        before_[is_overlapped(node(n)) ? latest_wait(n) : n + 1].waits.push_back(n);
    }
    if (moved_ > 0) reorder();
    return moved_;
  }

 private:
  // What is put before a node, waits first: then issues find the bytes of what has ended free.
  struct Before {
    std::vector<size_t> waits;
    std::vector<size_t> issues;
  };

  const Node& node(size_t n) const { return body_.nodes[n]; }

  int32_t queue_of(size_t n) const {
    if (io_queues_ == 1 || is_stream_load(node(n))) return kLoadQueue;
    if (!is_load(node(n))) return kStoreQueue;
    return phase_[place_[n]] < phase_[n] ? kPrefetchQueue : kLoadQueue;
  }

  // Views may show the bytes of what they view.
  void find_roots() {
    root_.resize(body_.values.size());
    for (size_t v = 0; v < root_.size(); ++v) root_[v] = static_cast<ValueIndex>(v);
    for (const Node& n : body_.nodes) {
      if (n.kind == Node::Kind::kView)
        root_[static_cast<size_t>(n.outputs[0])] = root_[static_cast<size_t>(n.inputs[0])];
    }
  }

  bool shows(ValueIndex v, ValueIndex root) const {
    return v != kNone && root_[static_cast<size_t>(v)] == root;
  }
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
    switch (n.kind) {
      case Node::Kind::kKernel:  // Scalars are index arithmetic more often than work.
        return n.outputs.empty() || n.out_specs[0].elements() > 1;
      case Node::Kind::kView:
      case Node::Kind::kIndex:
      case Node::Kind::kTransfer:
        return false;
      default:
        return true;
    }
  }

  // A phase loads, computes, stores.
  void find_phases() {
    bool computed = false;
    bool stored = false;
    for (size_t n = 0; n < nodes_; ++n) {
      const bool load = is_overlapped(node(n)) && is_load(node(n));
      const bool begins = (load && (computed || stored)) || (computes(node(n)) && stored);
      if (begins) computed = stored = false;
      if (begins || phase_begin_.empty()) phase_begin_.push_back(n);
      computed |= computes(node(n));
      stored |= is_overlapped(node(n)) && !load;
      phase_.push_back(phase_begin_.size() - 1);
    }
  }

  // The node before which a load is issued. A store is issued where it stands, right behind what made its bytes.
  size_t earliest_issue(size_t n) const {
    const Node& load = node(n);
    if (!is_load(load)) return n;
    const size_t phase = phase_[n];
    size_t at = n;
    while (at > phase_begin_[phase == 0 ? 0 : phase - 1]) {
      const Node& other = node(at - 1);
      if (other.kind == Node::Kind::kBranch || must_precede(other, load)) break;
      if (!is_overlapped(other) && conflicts(load, other, facts_)) break;
      --at;
    }
    // A queue runs its transfers in the order of issue, so behind overlapped ones the load need not wait for their end. On
    // another queue it would: then it stays, so that nobody waits earlier than the order asks for.
    for (size_t k = phase_begin_[phase < 2 ? 0 : phase - 2]; k < n; ++k) {
      if (!is_overlapped(node(k)) || !conflicts(load, node(k), facts_)) continue;
      if (io_queues_ > 1 && !is_load(node(k))) return n;
      at = std::max(at, place_[k]);
    }
    return at;
  }

  // It makes what the load overwrites or its entry, or is done with it.
  bool must_precede(const Node& other, const Node& load) const {
    const auto root = [&](ValueIndex v) { return root_[static_cast<size_t>(v)]; };
    return std::any_of(
               load.inputs.begin(), load.inputs.end(),
               [&](ValueIndex v) { return makes(other, root(v)) || overwrites(other, root(v)); }) ||
           std::any_of(load.ties.begin(), load.ties.end(), [&](const Tie& t) {
             return makes(other, root(t.into)) || overwrites(other, root(t.into)) ||
                    reads(other, root(t.into));
           });
  }

  // The node before which the transfer must have ended.
  size_t latest_wait(size_t n) const {
    const Node& transfer = node(n);
    const bool load = is_load(transfer);
    const ValueIndex root =
        root_[static_cast<size_t>(load ? transfer.outputs[0] : transfer.inputs[0])];
    size_t at = nodes_;
    for (size_t k = n + 1; k < nodes_; ++k) {
      // A load comes no earlier than the phase before its own.
      if (at <= phase_begin_[phase_[k] == 0 ? 0 : phase_[k] - 1]) break;
      const Node& other = node(k);
      const bool touches = overwrites(other, root) || (load && reads(other, root));
      const bool late = !load && phase_[k] > phase_[n] + 1;
      const bool orderly = is_overlapped(other) && other.queue == transfer.queue;
      const bool conflict = !orderly && conflicts(transfer, other, facts_);
      if (touches || (conflict && is_overlapped(other))) at = std::min(at, place_[k]);
      if (late || conflict || other.kind == Node::Kind::kBranch) at = std::min(at, k);
    }
    return at;
  }

  void reorder() {
    std::vector<Node> out;
    for (size_t n = 0; n <= nodes_; ++n) {
      for (const size_t t : before_[n].waits) out.push_back(wait_for(node(t)));
      for (const size_t t : before_[n].issues) out.push_back(node(t));
      if (n < nodes_ && node(n).queue == 0) out.push_back(std::move(body_.nodes[n]));
    }
    body_.nodes = std::move(out);
  }

  static Node wait_for(const Node& transfer) {
    Node wait;
    wait.kind = Node::Kind::kWait;
    wait.def = transfer.def;
    wait.inputs = {is_load(transfer) ? transfer.outputs[0] : transfer.inputs[0]};
    wait.in_specs = {is_load(transfer) ? transfer.out_specs[0] : transfer.in_specs[0]};
    wait.queue = transfer.queue;
    wait.token = transfer.token;
    wait.origin = transfer.origin;
    wait.where = transfer.where;
    wait.device = transfer.device;
    return wait;
  }

  Body& body_;
  const FactTable& facts_;
  const int io_queues_;
  const size_t nodes_;
  std::vector<Before> before_;
  std::vector<ValueIndex> root_;
  std::vector<size_t>
      place_;  // The node before which each is put: itself, or where a load is issued.
  std::vector<size_t> phase_;        // Of each node.
  std::vector<size_t> phase_begin_;  // First node of each phase.
  int64_t moved_ = 0;
};

}  // namespace

std::vector<int32_t> number_transfers(Body& body) {
  std::vector<int32_t> before_calls;
  int32_t transfers = 0;
  for (Node& node : body.nodes) {
    if (!node.callees.empty()) before_calls.push_back(transfers);
    if (node.kind == Node::Kind::kTransfer) node.token = transfers++;
  }
  return before_calls;
}

int64_t schedule_transfers(Body& body, const FactTable& facts, int io_queues) {
  return Scheduler(body, facts, io_queues).run();
}

std::vector<exe::Queue> queue_names(int io_queues) {
  switch (io_queues) {
    case 0:
      return {{"compute"}};
    case 1:
      return {{"compute"}, {"io"}};
    case 3:
      return {{"compute"}, {"load"}, {"store"}, {"prefetch"}};
    default:
      fail(ErrorKind::kUsage,
           "io queues: a device has 0, 1 or 3 (loads, stores, prefetches), not {}", io_queues);
  }
}

}  // namespace sluice::compiler
