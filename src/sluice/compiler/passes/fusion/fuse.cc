#include "sluice/compiler/passes/fusion/fuse.h"

#include <algorithm>

#include "sluice/base/error.h"

namespace sluice::compiler {
namespace {

constexpr size_t kMaxStages = 8;
constexpr const char* kOverwritten = "an operand is overwritten before the fused kernel can run";

using GroupId = Id<struct GroupTag>;

// A node to which ops are joined, and the values that each stage reads and computes.
struct Group {
  Node node;
  std::vector<ValueIndex> made;                     // Indexed by stage.
  std::vector<std::vector<ValueIndex>> reads;       // Indexed by stage and operand.
  std::vector<std::vector<TensorSpec>> read_specs;  // Specs of `reads`.
  std::vector<Tie> ties;                            // Here Tie::output is a stage.
  int64_t rank = 0;   // First sort key; initially the index of the node.
  int64_t born = 0;   // Second sort key; later joint groups are larger.
  bool open = false;  // May join another group and be joined.
  bool gone = false;
};

class Fuser {
 public:
  Fuser(Body& body, const Target& target, FusionReport& report)
      : body_(body),
        target_(target),
        report_(report),
        maker_(body.values.size()),
        overwriter_(body.values.size()),
        kept_(kept_values(body)),
        readers_(body.values.size()) {}

  int64_t run() {
    for (Node& node : body_.nodes) add(std::move(node));
    int64_t joined = 0;
    // Each group is visited once, in the order of the body. The readers of a group have then not
    // joined another group, so their ranks exceed the new rank of the group. In a second round, a
    // joint reader could have the same rank as the group and precede it.
    for (const GroupId g : groups_.ids()) {
      while (groups_[g].open && join_a_maker(g)) ++joined;
    }
    report();
    finish();
    return joined;
  }

 private:
  void add(Node node) {
    const GroupId g = groups_.end_id();
    Group group;
    group.rank = g;
    group.open = node.is<Node::Kernel>() && node.outputs.size() == 1 &&
                 !node.as<Node::Kernel>()->prints && node.outputs[0] != kNone;
    for (const ValueIndex v : node.inputs) {
      if (v != kNone) readers_[v].push_back(g);
    }
    for (const ValueIndex v : node.outputs) {
      if (v != kNone) maker_[v] = g;
    }
    for (const Tie& t : node.ties) overwriter_[t.into] = g;
    if (group.open) {
      group.made = {node.outputs[0]};
      group.reads = {node.inputs};
      group.read_specs = {node.in_specs};
      group.ties = node.ties;
    }
    group.node = std::move(node);
    groups_.push_back(std::move(group));
  }

  std::vector<ValueIndex> inputs_of(GroupId g) {
    std::vector<ValueIndex> inputs;
    const Group& group = groups_[g];
    for (const auto& reads : group.reads) {
      for (const ValueIndex v : reads) {
        const bool own = std::find(group.made.begin(), group.made.end(), v) != group.made.end();
        if (!own && std::find(inputs.begin(), inputs.end(), v) == inputs.end()) inputs.push_back(v);
      }
    }
    return inputs;
  }

  bool read_outside(ValueIndex v, GroupId a, GroupId b) const {
    const auto& readers = readers_[v];
    return kept_[v] ||
           std::any_of(readers.begin(), readers.end(), [&](GroupId r) { return r != a && r != b; });
  }

  // Joins a group to a group that computes one of its inputs. Returns false if there is none.
  bool join_a_maker(GroupId g) {
    for (const ValueIndex v : inputs_of(g)) {
      const GroupId head = maker_[v];
      Group joint;
      if (!head.valid() || head == g || !is_short(head, g) || obstacle(head, g, joint) != nullptr)
        continue;
      put(std::move(joint), head, g);
      return true;
    }
    return false;
  }

  bool is_short(GroupId head, GroupId tail) {
    return groups_[head].made.size() + groups_[tail].made.size() <= kMaxStages;
  }

  // Returns why `tail` cannot join `head`, which computes one of its inputs. If it can, sets
  // `joint` and returns null.
  const char* obstacle(GroupId head, GroupId tail, Group& joint) {
    const Group& h = groups_[head];
    const Group& t = groups_[tail];
    if (!h.open || !t.open) return "one of them is not a plain kernel";
    // The rank is after the producers of the tail's inputs and after the readers of values that the
    // tail overwrites.
    int64_t rank = h.rank;
    for (const ValueIndex v : inputs_of(tail)) {
      const GroupId maker = maker_[v];
      if (maker.valid() && maker != head) rank = std::max(rank, groups_[maker].rank);
    }
    for (const Tie& tie : t.ties) {
      // The tail may overwrite an output of the head only if no other node reads it.
      if (maker_[tie.into] == head) {
        if (read_outside(tie.into, head, tail)) return "it overwrites a value that other ops read";
        continue;
      }
      for (const GroupId r : readers_[tie.into]) {
        if (r != head && r != tail) rank = std::max(rank, groups_[r].rank);
      }
    }
    // Before this rank, other nodes must neither read the head's outputs nor overwrite its inputs
    // or outputs.
    const auto comes_later = [&](GroupId g) {
      return !g.valid() || g == head || g == tail || groups_[g].rank > rank;
    };
    for (const ValueIndex v : h.made) {
      for (const GroupId r : readers_[v]) {
        if (!comes_later(r)) return "other ops read the result before the fused kernel can run";
      }
      if (!comes_later(overwriter_[v])) return kOverwritten;
    }
    for (const ValueIndex v : inputs_of(head)) {
      if (!comes_later(overwriter_[v])) return kOverwritten;
    }
    joint = join(h, t);
    joint.rank = rank;
    if (!name_operands(joint, head, tail)) return "it reads the result in another shape";
    if (joint.node.outputs.empty()) return "nothing reads the results";
    if (!can_run(joint.node)) return "no kernel runs both";
    return nullptr;
  }

  // Replaces the tail by the joint group and removes the head.
  void put(Group joint, GroupId head, GroupId tail) {
    joint.born = ++time_;
    const auto renumber = [&](const Group& old, GroupId from) {
      for (const ValueIndex v : old.made) maker_[v] = tail;
      for (const auto& reads : old.reads) {
        for (const ValueIndex v : reads) {
          auto& readers = readers_[v];
          std::replace(readers.begin(), readers.end(), from, tail);
        }
      }
      for (const Tie& tie : old.ties) overwriter_[tie.into] = tail;
    };
    renumber(groups_[head], head);
    renumber(groups_[tail], tail);
    groups_[head].gone = true;
    groups_[tail] = std::move(joint);
  }

  // Counts the fused kernels, and the reasons for pairs that were not joined.
  void report() {
    for (const GroupId g : groups_.ids()) {
      if (groups_[g].gone || !groups_[g].open) continue;
      if (groups_[g].made.size() > 1) ++report_.made[name_of(groups_[g].node)];
      std::vector<GroupId> seen;
      for (const ValueIndex v : inputs_of(g)) {
        const GroupId head = maker_[v];
        Group joint;
        if (!head.valid() || !groups_[head].open ||
            std::find(seen.begin(), seen.end(), head) != seen.end())
          continue;
        seen.push_back(head);
        // If there is no obstacle now, it was a reader that has joined another group since.
        const char* const why = obstacle(head, g, joint);
        ++report_.refused[fmt::format(
            "{} after {}: {}", name_of(groups_[g].node), name_of(groups_[head].node),
            why != nullptr      ? why
            : is_short(head, g) ? "other ops read the result before the fused kernel could run"
                                : "one kernel cannot have this many ops")];
      }
    }
  }

  // Whether the target runs a joint node. All values that it overwrites must have one layout, which
  // its results get.
  bool can_run(const Node& node) const {
    Layout layout;
    for (const Tie& t : node.ties) {
      const Layout& own = body_.value(t.into).layout;
      if (&t != &node.ties.front() && own != layout) return false;
      layout = own;
    }
    // A result of a node that also updates has the layout of the update. A node that later
    // overwrites this result might not run on panels.
    for (size_t o = 0; o < node.outputs.size() && layout != Layout{}; ++o) {
      const bool tied = std::any_of(node.ties.begin(), node.ties.end(), [&](const Tie& t) {
        return t.output == static_cast<int32_t>(o);
      });
      if (!tied && overwriter_[node.outputs[o]].valid()) return false;
    }
    return target_.fuses(fused_op(body_, node).with_layout(layout));
  }

  static Group join(const Group& h, const Group& t) {
    Group joint;
    joint.open = true;
    joint.made = joined(h.made, t.made);
    joint.reads = joined(h.reads, t.reads);
    joint.read_specs = joined(h.read_specs, t.read_specs);
    joint.ties = joined(h.ties, t.ties);
    for (size_t i = h.ties.size(); i < joint.ties.size(); ++i)
      joint.ties[i].output += static_cast<int32_t>(h.made.size());
    joint.node.def = h.node.def;
    joint.node.origin = h.node.origin;
    joint.node.provenance = h.node.provenance;
    joint.node.device = h.node.device;
    Node::Kernel fused;
    fused.stages.reserve(joint.made.size());
    add_stages(h, fused.stages);
    add_stages(t, fused.stages);
    fused.origins.reserve(joint.made.size());
    add_origins(h, fused.origins);
    add_origins(t, fused.origins);
    joint.node.what = std::move(fused);
    return joint;
  }

  template <typename T>
  static std::vector<T> joined(const std::vector<T>& a, const std::vector<T>& b) {
    std::vector<T> both;
    both.reserve(a.size() + b.size());
    both.insert(both.end(), a.begin(), a.end());
    both.insert(both.end(), b.begin(), b.end());
    return both;
  }

  // Adds the stages of a group. name_operands() sets their operands.
  static void add_stages(const Group& g, std::vector<OpStage>& stages) {
    const Node::Kernel& kernel = *g.node.as<Node::Kernel>();
    if (!kernel.stages.empty()) {
      stages.insert(stages.end(), kernel.stages.begin(), kernel.stages.end());
      return;
    }
    OpStage& stage = stages.emplace_back();
    stage.op = g.node.def;
    stage.attrs = kernel.attrs;
    stage.spec = g.node.out_specs[0];
  }

  static void add_origins(const Group& g, std::vector<SharedProvenance>& origins) {
    const std::vector<SharedProvenance>& own = g.node.as<Node::Kernel>()->origins;
    if (own.empty()) {
      origins.insert(origins.end(), g.made.size(), g.node.provenance);
    } else {
      origins.insert(origins.end(), own.begin(), own.end());
    }
  }

  // Sets the operands of a joint group's node and of its stages. Returns false if a stage reads the
  // result of another stage in another shape.
  bool name_operands(Group& g, GroupId head, GroupId tail) {
    Node& node = g.node;
    node.inputs.clear();
    node.in_specs.clear();
    node.outputs.clear();
    node.out_specs.clear();
    node.ties.clear();
    std::vector<OpStage>& parts = node.as<Node::Kernel>()->stages;
    const auto stage_of = [&](ValueIndex v) {
      return static_cast<int32_t>(std::find(g.made.begin(), g.made.end(), v) - g.made.begin());
    };
    for (size_t s = 0; s < parts.size(); ++s) {
      OpStage& stage = parts[s];
      stage.inputs.clear();
      const std::vector<ValueIndex>& reads = g.reads[s];
      for (size_t i = 0; i < reads.size(); ++i) {
        const TensorSpec& spec = g.read_specs[s][i];
        const int32_t maker = stage_of(reads[i]);
        if (maker < std::ssize(parts)) {
          if (at(parts, maker).spec.shape != spec.shape) return false;
          stage.inputs.push_back(~maker);
          continue;
        }
        size_t known = 0;
        while (known < node.inputs.size() &&
               (node.inputs[known] != reads[i] || node.in_specs[known].shape != spec.shape))
          ++known;
        stage.inputs.push_back(static_cast<int32_t>(known));
        if (known < node.inputs.size()) continue;
        node.inputs.push_back(reads[i]);
        node.in_specs.push_back(spec);
      }
    }
    for (size_t s = 0; s < parts.size(); ++s) {
      const ValueIndex v = g.made[s];
      OpStage& stage = parts[s];
      stage.output = -1;
      const GroupId overwriter = overwriter_[v];
      const bool overwritten = overwriter.valid() && overwriter != head && overwriter != tail;
      if (!read_outside(v, head, tail) && !overwritten) continue;
      stage.output = static_cast<int32_t>(node.inputs.size() + node.outputs.size());
      const ValueIndex into = overwritten_by(g, static_cast<int32_t>(s));
      if (into != kNone) node.ties.push_back({static_cast<int32_t>(node.outputs.size()), into});
      node.outputs.push_back(v);
      node.out_specs.push_back(stage.spec);
    }
    return true;
  }

  // The value from outside the group that a stage overwrites; kNone if there is none. Follows
  // chains of stages that each overwrite the result before.
  static ValueIndex overwritten_by(const Group& g, int32_t stage) {
    for (const Tie& tie : g.ties) {
      if (tie.output != stage) continue;
      const auto maker = std::find(g.made.begin(), g.made.end(), tie.into);
      if (maker == g.made.end()) return tie.into;
      return overwritten_by(g, static_cast<int32_t>(maker - g.made.begin()));
    }
    return kNone;
  }

  void finish() {
    std::vector<Group*> order;
    for (Group& g : groups_) {
      if (!g.gone) order.push_back(&g);
    }
    std::stable_sort(order.begin(), order.end(), [](const Group* a, const Group* b) {
      return std::pair(a->rank, a->born) < std::pair(b->rank, b->born);
    });
    body_.nodes.clear();
    for (Group* g : order) body_.nodes.push_back(std::move(g->node));
  }

  Body& body_;
  const Target& target_;
  FusionReport& report_;
  Ids<GroupId, Group> groups_;
  Ids<ValueIndex, GroupId> maker_;
  Ids<ValueIndex, GroupId> overwriter_;
  Ids<ValueIndex, bool> kept_;  // For each value: whether a node after the group reads it.
  Ids<ValueIndex, std::vector<GroupId>> readers_;
  int64_t time_ = 0;
};

}  // namespace

int64_t fuse(Body& body, const Target& target, FusionReport& report) {
  return Fuser(body, target, report).run();
}

}  // namespace sluice::compiler
