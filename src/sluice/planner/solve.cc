#include "sluice/planner/solve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/planner/exact/exact.h"
#include "sluice/planner/greedy.h"
#include "sluice/planner/instance.h"
#include "sluice/planner/repair.h"

namespace sluice::planner {
namespace {

// The exact search of a small problem may use at least this many nodes.
constexpr int64_t kMinExactNodes = 5'000'000;
// Nodes of the search for lower plans, once it is known whether a plan fits the capacity.
constexpr int64_t kNodesPastCapacity = 100'000'000;

// Chosen by experiments on random problems. No taste is best for all problems.
constexpr std::array<Taste, 4> kTastes = {{
    {.priority_size = 1,
     .priority_crowd = 8,
     .cost_size = 4,
     .cost_pairs = 4,
     .cost_crowd = 64,
     .growth = 1.2},
    {.priority_size = 4,
     .priority_crowd = 128,
     .cost_size = 1,
     .cost_pairs = 2,
     .cost_crowd = 4,
     .growth = 1.02},
    {.priority_size = 3,
     .priority_crowd = 16,
     .cost_size = 3,
     .cost_pairs = 2,
     .cost_crowd = 64,
     .growth = 1.2},
    {.priority_size = 4,
     .priority_crowd = 32,
     .cost_size = 2,
     .cost_pairs = 1,
     .cost_crowd = 0,
     .growth = 1.05},
}};

// Returns a divisor of all sizes, alignments and fixed offsets, in units. Only its multiples need
// to be searched as heights.
int64_t grain_of(const Instance& instance) {
  int64_t grain = 0;
  for (int32_t i = 0; i < instance.count(); ++i) {
    grain = std::gcd(grain, instance.size[i]);
    if (instance.align[i] > 1) grain = std::gcd(grain, instance.align[i]);
    if (instance.fixed[i] > 0) grain = std::gcd(grain, instance.fixed[i]);
  }
  return grain;
}

// Checks that fixed items do not overlap: walks through time with the live fixed items in order of
// offset.
void check_fixed(const Problem& problem, const Instance& instance) {
  struct Event {
    int32_t section;
    bool birth;
    int32_t item;
  };
  std::vector<Event> events;
  for (int32_t i = 0; i < instance.count(); ++i) {
    if (instance.fixed[i] < 0) continue;
    for (const Sections& range : instance.lifetime(i)) {
      events.push_back({range.first, true, i});
      events.push_back({range.last, false, i});
    }
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.section != b.section ? a.section < b.section : a.birth < b.birth;
  });
  std::map<int64_t, int32_t> alive;
  for (const auto& [section, birth, item] : events) {
    const int64_t begin = instance.fixed[item];
    if (!birth) {
      alive.erase(begin);
      continue;
    }
    const auto above = alive.lower_bound(begin);
    int32_t other = -1;
    if (above != alive.end() && above->first < begin + instance.size[item]) other = above->second;
    if (above != alive.begin()) {
      const auto [start, below] = *std::prev(above);
      if (start + instance.size[below] > begin) other = below;
    }
    require(other < 0,
            "buffers '{}' and '{}': must not overlap at their fixed offsets while both live",
            problem.buffers[instance.buffer[std::max(other, 0)]].name,
            problem.buffers[instance.buffer[item]].name);
    alive.emplace(begin, item);
  }
}

template <typename Key>
std::vector<int32_t> descending(const Instance& instance, Key&& key) {
  std::vector<std::pair<double, int32_t>> keyed;
  for (int32_t i = 0; i < instance.count(); ++i) keyed.emplace_back(-key(i), i);
  std::sort(keyed.begin(), keyed.end());
  std::vector<int32_t> order;
  for (const auto& [value, item] : keyed) order.push_back(item);
  return order;
}

class Solver {
 public:
  static constexpr int64_t kNoLimit = INT64_MAX;

  // `limit` is the capacity in units, or kNoLimit.
  Solver(const Instance& instance, int64_t limit, const SolveOptions& options)
      : instance_(instance),
        limit_(limit),
        left_(std::max<int64_t>(options.max_nodes, 0)),
        exact_left_(std::max<int64_t>(options.exact_nodes, 0)),
        grain_(grain_of(instance)),
        refuted_(instance.bound - grain_) {
    const auto size = [&](int32_t i) { return static_cast<double>(instance_.size[i]); };
    const auto length = [&](int32_t i) { return static_cast<double>(instance_.length[i]); };
    by_size_ = descending(instance_, size);
    by_length_ = descending(instance_, length);
    by_area_ = descending(instance_, [&](int32_t i) { return size(i) * length(i); });
    by_balance_ = descending(instance_, [&](int32_t i) { return size(i) * std::sqrt(length(i)); });
    pairs_ = count_conflicts(instance_);
    // A problem of few pairs is solved after some thousand examinations of each pair, or not at
    // all.
    if (pairs_ < left_ / options.looks_per_pair) left_ = pairs_ * options.looks_per_pair;
    const int64_t min = exact_search_nodes(instance_);
    if (min < exact_left_ / options.exact_looks_per_pair) {
      exact_left_ =
          std::min(exact_left_, std::max(min * options.exact_looks_per_pair, kMinExactNodes));
    }
  }

  // Whether all heights below the best plan are refuted (multiples of the grain).
  bool done() const { return !best_.empty() && height_ - refuted_ <= grain_; }
  const Offsets& best() const { return best_; }
  int64_t exact_nodes() const { return exact_used_; }
  // Units that every plan needs.
  int64_t lower_bound() const { return best_.empty() ? 0 : std::min(refuted_ + grain_, height_); }

  void run() {
    const bool few = pairs_ <= left_;
    const auto has_hint = [](int64_t hint) { return hint >= 0; };
    if (few && std::any_of(instance_.hint.begin(), instance_.hint.end(), has_hint)) {
      // Make a plan that takes the hints first: only a lower plan replaces it.
      conflicts_ = make_conflicts(instance_);
      fit(descending(instance_, [&](int32_t i) { return instance_.hint[i] >= 0; }), Fit::kLowest);
    }
    stack_all();
    if (!few || done()) return;
    if (conflicts_.begin.empty()) conflicts_ = make_conflicts(instance_);
    fit_all();
    lower();
  }

 private:
  void keep(Offsets offsets) {
    const int64_t height = height_of(instance_, offsets);
    if (!best_.empty() && height >= height_) return;
    best_ = std::move(offsets);
    height_ = height;
  }

  // Stacking with long lifetimes at the bottom suits nested lifetimes. Sweeping suits chains.
  void stack_all() {
    for (const auto* order : {&by_length_, &by_area_, &by_size_}) {
      if (!done()) keep(stack(instance_, *order));
    }
    if (!done()) keep(sweep(instance_));
  }

  void fit(const std::vector<int32_t>& order, Fit kind) {
    keep(first_fit(instance_, conflicts_, order, kind));
    left_ -= pairs_ * 3 / 4;  // Half of the neighbours are placed, on average.
  }

  void fit_all() {
    const std::pair<const std::vector<int32_t>*, Fit> kinds[] = {{&by_size_, Fit::kLowest},
                                                                 {&by_balance_, Fit::kLowest},
                                                                 {&by_area_, Fit::kLowest},
                                                                 {&by_size_, Fit::kTightest},
                                                                 {&by_length_, Fit::kLowest}};
    for (const auto& [order, kind] : kinds) {
      if (done()) return;
      fit(*order, kind);
      if (left_ < 10 * pairs_) return;
    }
  }

  Outcome try_exactly(int64_t height, int64_t max_nodes) {
    int64_t nodes = 0;
    Offsets offsets;
    const Outcome outcome = exact_search(instance_, conflicts_, height, max_nodes, offsets, nodes);
    exact_left_ -= nodes;
    exact_used_ += nodes;
    if (outcome == Outcome::kFound) keep(std::move(offsets));
    if (outcome == Outcome::kRefuted) refuted_ = std::max(refuted_, height / grain_ * grain_);
    return outcome;
  }

  Outcome try_lowest(int64_t max_nodes) { return try_exactly(refuted_ + grain_, max_nodes); }

  // Bisects the heights between the refuted ones and the best plan, with `share` nodes for each
  // height.
  void bisect_exactly(int64_t share) {
    int64_t failed = refuted_;
    while (!done() && exact_left_ > 0) {
      const int64_t heights = (height_ - failed - 1) / grain_;
      if (heights == 0) return;
      const int64_t height = failed + grain_ * ((heights + 1) / 2);
      if (try_exactly(height, std::min(share, exact_left_)) != Outcome::kFound) failed = height;
    }
  }

  // Lowers the best plan by exact searches and repairs. An exact search prunes best if little room
  // is spare, so the lowest height gets half of the nodes. The remaining nodes go to heights below
  // the repaired plan.
  void lower() {
    if (!done() && limit_ > refuted_ && limit_ < height_) try_exactly(limit_, exact_left_);
    if (limit_ != kNoLimit && (height_ <= limit_ || refuted_ + grain_ > limit_)) {
      exact_left_ = std::min(exact_left_, kNodesPastCapacity);
    }
    int64_t share = exact_left_ / 64 + 1;
    if (!done() && try_lowest(share) != Outcome::kGaveUp) bisect_exactly(share);
    if (!done()) try_lowest(exact_left_ / 2);
    if (!done()) improve();
    while (!done() && exact_left_ >= exact_search_nodes(instance_)) {
      share = std::min(share * 4, exact_left_);
      bisect_exactly(share);
    }
  }

  // Repairs plans at bisected heights between the refuted ones and the best plan, until the nodes
  // run out. Each round uses the next taste. Rounds start alternately from an empty plan and from
  // the best one.
  void improve() {
    const int64_t bound = refuted_ + grain_;
    const std::vector<double> crowd = crowd_of(instance_);
    const int64_t min_patience = std::max(pairs_ / 2, left_ / 64);
    const bool large = left_ < 100 * pairs_;
    for (uint64_t round = 0; !done() && left_ > 0; ++round) {
      if (large && round > 0 && height_ - bound <= bound / 1024) return;
      const uint64_t cycle = std::min<uint64_t>(round / kTastes.size(), 8);
      int64_t failed = bound - 1;
      while (!done() && left_ > 0) {
        const int64_t gap = height_ - failed;
        const int64_t finest = std::max(bound / 8192, (height_ - bound) / 8);
        if (failed >= bound && gap <= std::max<int64_t>(finest, 1)) break;
        // A repair usually gets far below the first plan, so begin lower in round 0.
        int64_t height = failed + std::max<int64_t>(round == 0 ? gap / 5 : gap / 2, 1);
        if (failed < bound && gap <= 4 * finest) height = bound;
        Offsets offsets = round % 2 == 0 ? instance_.fixed : best_;
        // The nodes of a large problem allow few attempts: keep some for an easier height.
        const int64_t max = large ? left_ * 5 / 8 + 1 : left_;
        int64_t nodes = instance_.count();
        const bool lowered = repair(instance_, conflicts_, crowd,
                                    {.height = height,
                                     .max_nodes = max,
                                     .patience = min_patience << cycle,
                                     .taste = kTastes[round % kTastes.size()],
                                     .seed = round},
                                    offsets, nodes);
        left_ -= nodes;
        if (lowered) {
          keep(std::move(offsets));
        } else {
          failed = height;
        }
      }
    }
  }

  const Instance& instance_;
  const int64_t limit_;
  Conflicts conflicts_;
  int64_t pairs_ = 0;
  int64_t left_;        // Nodes left, except those of the exact search.
  int64_t exact_left_;  // Nodes left of the exact search.
  int64_t exact_used_ = 0;
  const int64_t grain_;
  int64_t refuted_;  // No plan has this height or less; a multiple of the grain.
  std::vector<int32_t> by_size_;
  std::vector<int32_t> by_length_;
  std::vector<int32_t> by_area_;
  std::vector<int32_t> by_balance_;
  Offsets best_;
  int64_t height_ = 0;
};

// Describes what the searches proved about a problem whose plan exceeds its capacity.
std::string proof_of(const Solution& solution, int64_t capacity, int64_t min_nodes,
                     int64_t max_nodes) {
  if (solution.optimal) return ", and no plan is lower";
  if (solution.lower_bound > capacity) return ", and no plan fits";
  if (solution.exact_nodes > 0) {
    return fmt::format("; the exact search gave up after {} nodes", solution.exact_nodes);
  }
  if (min_nodes != INT64_MAX && min_nodes > max_nodes) {
    return fmt::format("; the exact search requires at least {} nodes, got {}", min_nodes,
                       max_nodes);
  }
  return "; the exact search did not run";
}

}  // namespace

Solution solve(const Problem& problem, const SolveOptions& options) {
  require(options.looks_per_pair >= 1, "looks_per_pair: must be at least 1, got {}",
          options.looks_per_pair);
  require(options.exact_looks_per_pair >= 1, "exact_looks_per_pair: must be at least 1, got {}",
          options.exact_looks_per_pair);
  Solution solution;
  solution.bound = live_set_bound(problem);
  for (const Buffer& buffer : problem.buffers) {
    solution.offsets.push_back(buffer.fixed_offset.value_or(0));
  }
  const Instance instance = make_instance(problem);
  check_fixed(problem, instance);
  Solver solver(instance, problem.capacity ? *problem.capacity / instance.unit : Solver::kNoLimit,
                options);
  if (instance.count() > 0) solver.run();
  for (int32_t i = 0; i < instance.count(); ++i) {
    const size_t index = instance.buffer[i];
    solution.offsets[index] = solver.best()[i] * instance.unit;
    solution.height =
        std::max(solution.height, solution.offsets[index] + problem.buffers[index].size);
  }
  solution.optimal = instance.count() == 0 || solver.done();
  // The topmost buffer may not fill its last unit.
  solution.lower_bound = std::max(solution.bound, (solver.lower_bound() - 1) * instance.unit + 1);
  solution.exact_nodes = solver.exact_nodes();
  if (problem.capacity && solution.height > *problem.capacity) {
    fail(ErrorKind::kDoesNotFit,
         "{} buffers need {} bytes, the capacity is {}; the live-set bound is {}{}",
         problem.buffers.size(), solution.height, *problem.capacity, solution.bound,
         proof_of(solution, *problem.capacity, exact_search_nodes(instance), options.exact_nodes));
  }
  return solution;
}

}  // namespace sluice::planner
