#include "sluice/planner/exact/exact.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include "sluice/planner/exact/order_search.h"
#include "sluice/planner/exact/stack_search.h"
#include "sluice/planner/repair.h"

namespace sluice::planner {
namespace {

// For each placed item, the stack search stores a list of the waiting items: its memory grows with
// the square of the number of items.
constexpr int32_t kMaxItems = 4096;
// Nodes of the stack search after which the order search starts. Most problems that the stack
// search can solve need fewer. A solve with default options and without a capacity, as the compiler
// runs it, ends before.
constexpr int64_t kNodesBeforeOrders = 50'000'000;

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

// Runs the stack search and the order search in turns.
class ExactSearch {
 public:
  ExactSearch(const Instance& instance, const Conflicts& conflicts, int64_t height,
              int64_t max_nodes)
      : instance_(instance),
        conflicts_(conflicts),
        height_(height),
        left_(max_nodes),
        refuted_(max_nodes / std::max(instance.count(), 1)),
        stack_(instance, conflicts, height, refuted_),
        ranks_(make_ranks(instance)) {}

  // Each round doubles the nodes of a turn. The order search gets as many nodes as the stack search
  // used for all ranks of the round.
  Outcome run() {
    const int64_t first = 4 * exact_search_nodes(instance_) + 1000;
    Outcome outcome = Outcome::kGaveUp;
    int64_t used = 0;
    for (int64_t turn = first; outcome == Outcome::kGaveUp && left_ > 0; turn *= 2) {
      const int64_t before = left_;
      outcome = stack(turn);
      used += before - left_;
      if (outcome == Outcome::kGaveUp && used >= kNodesBeforeOrders) {
        outcome = order(before - left_);
      }
    }
    return outcome;
  }

  int64_t left() const { return left_; }
  const Places& places() const { return places_; }

 private:
  Outcome stack(int64_t turn) {
    for (const auto& rank : ranks_) {
      const int64_t most = std::min(turn, left_);
      const Outcome outcome = stack_.run(rank, most);
      left_ -= most - stack_.left();
      if (outcome == Outcome::kFound) places_ = stack_.places();
      if (outcome != Outcome::kGaveUp || left_ <= 0) return outcome;
    }
    return Outcome::kGaveUp;
  }

  Outcome order(int64_t turn) {
    if (left_ <= 0 || !OrderGraph::takes(instance_, conflicts_)) return Outcome::kGaveUp;
    if (!order_) order_ = std::make_unique<OrderSearch>(instance_, conflicts_, height_);
    const int64_t before = order_->nodes();
    const Outcome outcome = order_->run(std::min(turn, left_));
    left_ -= order_->nodes() - before;
    if (outcome == Outcome::kFound) places_ = order_->places();
    return outcome;
  }

  const Instance& instance_;
  const Conflicts& conflicts_;
  const int64_t height_;
  int64_t left_;  // Nodes left.
  Refuted refuted_;
  StackSearch stack_;
  const std::vector<std::vector<int32_t>> ranks_;
  std::unique_ptr<OrderSearch> order_;
  Places places_;
};

}  // namespace

int64_t exact_search_nodes(const Instance& instance) {
  const int64_t count = instance.count();
  return count <= kMaxItems ? count * count : INT64_MAX;
}

Outcome exact_search(const Instance& instance, const Conflicts& conflicts, int64_t height,
                     int64_t max_nodes, Places& places, int64_t& nodes) {
  const auto too_large = [&](int64_t units) { return units >= kNever; };
  if (max_nodes < exact_search_nodes(instance) || too_large(height) ||
      std::any_of(instance.size.begin(), instance.size.end(), too_large) ||
      std::any_of(instance.align.begin(), instance.align.end(), too_large)) {
    return Outcome::kGaveUp;
  }
  ExactSearch search(instance, conflicts, height, max_nodes);
  const Outcome outcome = search.run();
  nodes += max_nodes - search.left();
  if (outcome == Outcome::kFound) places = search.places();
  return outcome;
}

}  // namespace sluice::planner
