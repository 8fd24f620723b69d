#include "sluice/compiler/analysis/feed_slots.h"

#include <algorithm>
#include <vector>

#include "sluice/base/checked.h"
#include "sluice/compiler/analysis/body_facts.h"

namespace sluice::compiler {
namespace {

/// Uses of the fields of one feed by a part of a program.
class Uses {
 public:
  explicit Uses(size_t fields) : counts_(fields, 0), ahead_(fields * fields, kUnused) {}

  static Uses of(size_t fields, size_t field) {
    Uses one(fields);
    one.counts_[field] = 1;
    for (size_t g = 0; g < fields; ++g) one.ahead(field, g) = 0;
    return one;
  }

  int64_t count(size_t field) const { return counts_[field]; }
  bool used(size_t f) const { return ahead(f, f) != kUnused; }
  /// Entries used of f minus those of g, at most, right before a use of f. Requires used(f).
  int64_t ahead(size_t f, size_t g) const { return ahead_[f * counts_.size() + g]; }

  /// Adds a part that follows.
  void then(const Uses& next) {
    for (size_t f = 0; f < counts_.size(); ++f) {
      if (!next.used(f)) continue;
      for (size_t g = 0; g < counts_.size(); ++g)
        ahead(f, g) = std::max(ahead(f, g), counts_[f] - counts_[g] + next.ahead(f, g));
    }
    for (size_t f = 0; f < counts_.size(); ++f) counts_[f] += next.counts_[f];
  }

  /// Returns the uses of `trips` repetitions. The first or the last iteration has the maximum.
  Uses repeated(int64_t trips) const {
    Uses all(counts_.size());
    if (trips == 0) return all;
    for (size_t f = 0; f < counts_.size(); ++f) {
      all.counts_[f] = checked_mul(counts_[f], trips);
      for (size_t g = 0; g < counts_.size() && used(f); ++g) {
        const int64_t gain = std::max<int64_t>(counts_[f] - counts_[g], 0);
        all.ahead(f, g) = checked_add(ahead(f, g), checked_mul(gain, trips - 1));
      }
    }
    return all;
  }

 private:
  static constexpr int64_t kUnused = INT64_MIN;
  int64_t& ahead(size_t f, size_t g) { return ahead_[f * counts_.size() + g]; }

  std::vector<int64_t> counts_;
  std::vector<int64_t> ahead_;
};

std::optional<size_t> field_of(const FeedInfo& feed, const Node& node) {
  const auto sequence = sequence_of(node);
  if (!sequence || sequence->of != Sequence::Of::kStream) return std::nullopt;
  const auto found = std::find(feed.streams.begin(), feed.streams.end(), sequence->id);
  if (found == feed.streams.end()) return std::nullopt;
  return static_cast<size_t>(found - feed.streams.begin());
}

void check_equal(const Program& program, const FeedInfo& feed, const std::string& user,
                 const Uses& uses) {
  std::string counts;
  bool equal = true;
  for (size_t f = 0; f < feed.streams.size(); ++f) {
    equal = equal && uses.count(f) == uses.count(0);
    counts += fmt::format("{}'{}' {}", f == 0 ? "" : ", ", program.ir.stream(feed.streams[f]).name,
                          uses.count(f));
  }
  require(equal,
          "feed '{}': {} must {} all fields equally often, got {}; {} every field of "
          "each element",
          feed.name, user, feed.input ? "load" : "store", counts, feed.input ? "load" : "store");
}

// An exit of a loop must not leave a field with fewer elements than another.
Uses uses_of(const Program& program, const FeedInfo& feed, const Body& body,
             const Ids<BodyId, Uses>& bodies) {
  Uses all(feed.streams.size());
  for (const Node& node : body.nodes) {
    if (const auto field = field_of(feed, node)) all.then(Uses::of(feed.streams.size(), *field));
    const auto* call = node.call();  // A branch uses no streams.
    if (call == nullptr) continue;
    const Uses& callee = bodies[call->callee];
    const auto* loop = node.as<Node::Loop>();
    if (loop != nullptr && !loop->conditions.empty())
      check_equal(program, feed, "the body of " + name_of(node) + " made at " + node.where(),
                  callee);
    all.then(loop != nullptr ? callee.repeated(loop->trips) : callee);
  }
  return all;
}

}  // namespace

std::map<int32_t, int64_t> feed_slots(const Program& program) {
  std::map<int32_t, int64_t> slots;
  if (program.ir.feeds().empty()) return slots;
  const FactTable facts(program);  // Refuses feeds in branches, and counts that overflow.
  for (const FeedInfo& feed : program.ir.feeds()) {
    const size_t fields = feed.streams.size();
    Ids<BodyId, Uses> bodies(program.bodies.size(), Uses(fields));
    for (const BodyId id : callees_first(program))
      bodies[id] = uses_of(program, feed, program.body(id), bodies);
    std::vector<int64_t> max(fields, 0);
    for (const EntryBodies& entry : program.entries) {
      const Uses& uses = bodies[entry.bodies[0]];
      check_equal(program, feed, "program '" + entry.name + "'", uses);
      for (size_t f = 0; f < fields; ++f) {
        for (size_t g = 0; g < fields && uses.used(f); ++g) {
          int64_t& of = max[feed.input ? g : f];
          of = std::max(of, uses.ahead(f, g));
        }
      }
    }
    for (size_t f = 0; f < fields; ++f)
      slots[feed.streams[f]] = checked_add(max[f], int64_t{feed.depth});
  }
  return slots;
}

}  // namespace sluice::compiler
