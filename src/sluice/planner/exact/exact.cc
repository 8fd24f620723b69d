#include "sluice/planner/exact/exact.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "sluice/planner/exact/stack_search.h"
#include "sluice/planner/repair.h"

namespace sluice::planner {
namespace {

// For each placed item, the stack search stores a list of the waiting items: its memory grows with
// the square of the number of items.
constexpr int32_t kMaxItems = 4096;

// Ranks the items by several combinations of traits, the greatest first. All rankings are tried,
// because the best one depends on the problem.
std::vector<std::vector<int32_t>> make_ranks(const Instance& instance) {
  using Key = std::array<double, 3>;
  const std::vector<double> crowd = crowd_of(instance);
  std::vector<Key> traits;
  for (int32_t i = 0; i < instance.count(); ++i) {
    const auto length = static_cast<double>(instance.length[i]);
    traits.push_back({length, length * static_cast<double>(instance.size[i]), crowd[i]});
  }
  constexpr int kLength = 0;
  constexpr int kArea = 1;
  constexpr int kCrowd = 2;
  constexpr std::array<int, 3> kOrders[] = {{kLength, kArea, kCrowd},
                                            {kCrowd, kArea, kLength},
                                            {kCrowd, kLength, kArea},
                                            {kArea, kCrowd, kLength}};
  std::vector<std::vector<int32_t>> ranks;
  for (const auto& order : kOrders) {
    const auto key = [&](int32_t i) {
      return Key{-traits[i][order[0]], -traits[i][order[1]], -traits[i][order[2]]};
    };
    std::vector<int32_t> items(traits.size());
    std::iota(items.begin(), items.end(), 0);
    std::stable_sort(items.begin(), items.end(),
                     [&](int32_t a, int32_t b) { return key(a) < key(b); });
    auto& rank = ranks.emplace_back(items.size());
    for (size_t k = 0; k < items.size(); ++k) rank[items[k]] = static_cast<int32_t>(k);
  }
  return ranks;
}

}  // namespace

int64_t exact_search_nodes(const Instance& instance) {
  const int64_t count = instance.count();
  return count <= kMaxItems ? count * count : INT64_MAX;
}

Outcome exact_search(const Instance& instance, const Conflicts& conflicts, int64_t height,
                     int64_t max_nodes, Offsets& offsets, int64_t& nodes) {
  const auto too_large = [&](int64_t units) { return units >= kNever; };
  if (max_nodes < exact_search_nodes(instance) || too_large(height) ||
      std::any_of(instance.size.begin(), instance.size.end(), too_large) ||
      std::any_of(instance.align.begin(), instance.align.end(), too_large)) {
    return Outcome::kGaveUp;
  }
  Refuted refuted(max_nodes / std::max(instance.count(), 1));
  StackSearch search(instance, conflicts, height, refuted);
  const std::vector<std::vector<int32_t>> ranks = make_ranks(instance);
  int64_t left = max_nodes;
  // Each round doubles the node budget.
  for (int64_t budget = 4 * exact_search_nodes(instance) + 1000;; budget *= 2) {
    for (const std::vector<int32_t>& rank : ranks) {
      const int64_t limit = std::min(budget, left);
      const Outcome outcome = search.run(rank, limit);
      left -= limit - search.left();
      if (outcome == Outcome::kGaveUp && left > 0) continue;
      nodes += max_nodes - left;
      if (outcome == Outcome::kFound) offsets = search.offsets();
      return outcome;
    }
  }
}

}  // namespace sluice::planner
