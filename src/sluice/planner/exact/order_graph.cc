#include "sluice/planner/exact/order_graph.h"

#include <algorithm>
#include <numeric>

namespace sluice::planner {
namespace {

// Limits on memory: 4 bytes for each entry of a table of items x items, and some hundred bytes for
// each pair that lives at one time. About 100 MB at most.
constexpr int32_t kMaxOrderItems = 3000;
constexpr size_t kMostPairs = 400'000;
// An exchange with more members implies little until nearly all of their orders are chosen.
constexpr size_t kMostMembers = 40;
constexpr size_t kMostSurvivorPairs = 2'000'000;

}  // namespace

bool OrderGraph::takes(const Instance& instance, const Conflicts& conflicts) {
  return instance.count() <= kMaxOrderItems && conflicts.neighbours.size() / 2 <= kMostPairs &&
         instance.ranges.size() == static_cast<size_t>(instance.count());
}

OrderGraph::OrderGraph(const Instance& instance, const Conflicts& conflicts, int64_t height)
    : count_(instance.count()),
      literal_(static_cast<size_t>(count_) * static_cast<size_t>(count_), kNoLiteral) {
  make_pairs(conflicts);
  make_cliques(instance, height);
  make_exchanges(instance);
}

void OrderGraph::make_pairs(const Conflicts& conflicts) {
  const auto place = [&](int32_t a, int32_t b) -> Literal& {
    return literal_[static_cast<size_t>(a) * static_cast<size_t>(count_) + static_cast<size_t>(b)];
  };
  for (int32_t a = 0; a < count_; ++a) {
    for (const int32_t b : conflicts.of(a)) {
      if (b < a) continue;
      place(a, b) = static_cast<Literal>(low_.size());
      place(b, a) = static_cast<Literal>(low_.size() + 1);
      low_.push_back(a);
      low_.push_back(b);
    }
  }
}

void OrderGraph::make_cliques(const Instance& instance, int64_t height) {
  std::vector<std::vector<int32_t>> alive(static_cast<size_t>(instance.sections));
  std::vector<char> ends(alive.size() + 1, 0);
  for (int32_t i = 0; i < count_; ++i) {
    const Sections range = instance.lifetime(i).front();
    for (int32_t s = range.first; s < range.last; ++s) alive[s].push_back(i);
    ends[range.last] = 1;
  }
  cliques_of_.assign(static_cast<size_t>(count_), {INT32_MAX, -1});
  for (size_t s = 0; s < alive.size(); ++s) {
    // If no item ends here, the next section has these items and more: its clique includes this
    // one.
    if (!ends[s + 1]) continue;
    const auto index = static_cast<int32_t>(cliques_.size());
    Clique& clique = cliques_.emplace_back();
    clique.items = std::move(alive[s]);
    clique.slack = height;
    for (const int32_t i : clique.items) {
      clique.slack -= instance.size[i];
      cliques_of_[i] = {std::min(cliques_of_[i].first, index), index + 1};
    }
    std::stable_sort(clique.items.begin(), clique.items.end(),
                     [&](int32_t a, int32_t b) { return instance.size[a] > instance.size[b]; });
  }
  membership_begin_.push_back(0);
  for (const Sections& range : cliques_of_) {
    membership_begin_.push_back(membership_begin_.back() +
                                static_cast<size_t>(range.last - range.first));
  }
}

Sections OrderGraph::cliques_of_both(int32_t a, int32_t b) const {
  return {std::max(cliques_of_[a].first, cliques_of_[b].first),
          std::min(cliques_of_[a].last, cliques_of_[b].last)};
}

// Makes exchanges between neighbouring cliques, and between two cliques that both have less slack
// than every clique between them.
void OrderGraph::make_exchanges(const Instance& instance) {
  const auto count = static_cast<int32_t>(cliques_.size());
  for (int32_t before = 0; before < count; ++before) {
    int64_t least_between = INT64_MAX;
    for (int32_t after = before + 1; after < count; ++after) {
      if (cliques_[before].slack >= least_between) break;
      if (cliques_[after].slack >= least_between) continue;
      least_between = cliques_[after].slack;
      if (!make_exchange(instance, before, after)) break;
    }
  }
  sort_survivor_pairs();
}

// Makes one exchange, unless it is too large or implies nothing. Returns whether exchanges of
// `before` with later cliques may be useful.
bool OrderGraph::make_exchange(const Instance& instance, int32_t before, int32_t after) {
  Exchange exchange;
  exchange.slack_before = cliques_[before].slack;
  exchange.slack_after = cliques_[after].slack;
  std::vector<int32_t> both;
  int64_t dying = 0;
  int64_t born = 0;
  for (const int32_t i : cliques_[before].items) {
    if (cliques_of_[i].last > after) {
      both.push_back(i);
    } else {
      exchange.members.push_back({i, instance.size[i], true});
      dying += instance.size[i];
    }
  }
  for (const int32_t i : cliques_[after].items) {
    if (cliques_of_[i].first <= before) continue;
    exchange.members.push_back({i, instance.size[i], false});
    born += instance.size[i];
  }
  const size_t pairs = exchange.members.size() * both.size();
  if (both.empty() || survivor_pairs_.size() + pairs > kMostSurvivorPairs) return false;
  if (exchange.members.size() > kMostMembers && after > before + 1) return false;
  if (dying <= exchange.slack_after && born <= exchange.slack_before) return true;
  std::stable_sort(exchange.members.begin(), exchange.members.end(),
                   [](const auto& a, const auto& b) { return a.size > b.size; });
  for (const int32_t item : both) {
    for (const auto& member : exchange.members) {
      const Literal literal = below(member.item, item);
      survivor_pairs_.push_back({static_cast<int32_t>(survivors_.size()), member.size, member.dies,
                                 literal < negated(literal)});
      survivor_pair_pairs_.push_back(pair_of(literal));
    }
    survivors_.push_back({item, static_cast<int32_t>(exchanges_.size())});
  }
  exchanges_.push_back(std::move(exchange));
  return true;
}

void OrderGraph::sort_survivor_pairs() {
  survivor_pair_begin_.assign(static_cast<size_t>(pairs()) + 1, 0);
  for (const int32_t pair : survivor_pair_pairs_) ++survivor_pair_begin_[pair + 1];
  std::partial_sum(survivor_pair_begin_.begin(), survivor_pair_begin_.end(),
                   survivor_pair_begin_.begin());
  auto fill = survivor_pair_begin_;
  std::vector<SurvivorPair> sorted(survivor_pairs_.size());
  for (size_t k = 0; k < sorted.size(); ++k) {
    sorted[fill[survivor_pair_pairs_[k]]++] = survivor_pairs_[k];
  }
  survivor_pairs_ = std::move(sorted);
  survivor_pair_pairs_ = {};
}

}  // namespace sluice::planner
