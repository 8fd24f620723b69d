#include "sluice/planner/repair.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "sluice/planner/greedy.h"

namespace sluice::planner {
namespace {

constexpr double kMaxGrowth = 1e9;  // Keeps sums of weights exact enough to compare.

// Replaces std::pow, whose last bit depends on the machine.
double power(double base, int exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) result *= base;
  }
  return result;
}

double quarter_power(double base, int quarters) {
  return power(std::sqrt(std::sqrt(base)), quarters);
}

// Pseudo-random numbers in [0, 1): a counter through a mixing function (splitmix64).
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}
  double next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

 private:
  uint64_t state_;
};

class Repair {
 public:
  Repair(const Instance& instance, const Conflicts& conflicts, const std::vector<double>& crowd,
         const RepairOptions& options)
      : instance_(instance),
        conflicts_(conflicts),
        taste_(options.taste),
        height_(options.height),
        patience_(options.patience),
        left_(options.max_nodes),
        growth_(crowd.size(), 1.0),
        priority_(crowd.size()),
        cost_(crowd.size()),
        slots_(crowd.size()),
        noise_(options.seed) {
    for (int32_t i = 0; i < instance.count(); ++i) {
      const auto size = static_cast<double>(instance.size[i]);
      const auto pairs = static_cast<double>(conflicts.of(i).size() + 1);
      priority_[i] =
          quarter_power(size, taste_.priority_size) * power(crowd[i], taste_.priority_crowd);
      cost_[i] = quarter_power(size, taste_.cost_size) * quarter_power(pairs, taste_.cost_pairs) *
                 power(crowd[i], taste_.cost_crowd);
      if (instance.fixed[i] >= 0) any_fixed_ = true;
    }
  }

  bool run(const Offsets& offsets) {
    for (int32_t i = 0; i < instance_.count(); ++i) {
      if (offsets[i] >= 0 && offsets[i] + instance_.size[i] <= height_) {
        put(i, offsets[i]);
      } else if (instance_.fixed[i] >= 0) {
        return false;
      } else {
        eject(i);
      }
    }
    int64_t min = waiting_;
    int64_t give_up = left_ - patience_;
    while (!unplaced_.empty() && left_ > 0) {
      if (waiting_ < min) {
        min = waiting_;
        give_up = left_ - patience_;
      } else if (left_ < give_up) {
        return false;
      }
      const int32_t item = unplaced_.top().second;
      unplaced_.pop();
      waiting_ -= instance_.size[item];
      if (!place(item)) return false;
    }
    return unplaced_.empty();
  }

  int64_t left() const { return left_; }

  Offsets offsets() const {
    Offsets offsets;
    for (const Slot& slot : slots_) offsets.push_back(slot.begin);
    return offsets;
  }

 private:
  void put(int32_t item, int64_t begin) {
    slots_[item] = {begin, begin + instance_.size[item], growth_[item] * cost_[item]};
  }

  void eject(int32_t item) {
    slots_[item].begin = -1;
    waiting_ += instance_.size[item];
    unplaced_.push({growth_[item] * priority_[item], item});
  }

  bool place(int32_t item) {
    const auto neighbours = conflicts_.of(item);
    blocks_.gather(neighbours, slots_);
    const auto count = static_cast<int64_t>(blocks_.by_begin().size());
    left_ -= static_cast<int64_t>(neighbours.size()) / 4 + count + 1;
    if (const int64_t hole = lowest_hole(item); hole >= 0) {
      put(item, hole);
      return true;
    }
    left_ -= 2 * count;
    const int64_t begin = any_fixed_ ? cheapest<true>(item) : cheapest<false>(item);
    if (begin < 0) return false;
    const int64_t end = begin + instance_.size[item];
    for (const Block& block : blocks_.by_begin()) {
      if (block.begin >= end) break;
      if (block.end > begin) eject(block.item);
    }
    growth_[item] = std::min(growth_[item] * taste_.growth, kMaxGrowth);
    put(item, begin);
    return true;
  }

  int64_t lowest_hole(int32_t item) const {
    const int64_t size = instance_.size[item];
    const int64_t align = instance_.align[item];
    int64_t top = 0;
    for (const Block& block : blocks_.by_begin()) {
      const int64_t begin = align_up(top, align);
      if (begin + size <= block.begin) return begin;
      top = std::max(top, block.end);
    }
    const int64_t begin = align_up(top, align);
    return begin + size <= height_ ? begin : -1;
  }

  // Returns the offset with the cheapest blocks in the way, or -1 if every offset overlaps a fixed
  // block. Candidates are the offsets right above or right below a block and both ends of the
  // arena. Any other offset can slide to a candidate without a new overlap.
  template <bool kFixed>
  int64_t cheapest(int32_t item) {
    const int64_t size = instance_.size[item];
    const int64_t align = instance_.align[item];
    if (size > height_) return -1;
    const int64_t highest = align_down(height_ - size, align);
    const auto& starts = blocks_.by_begin();
    const auto& ends = blocks_.by_end();
    const size_t count = starts.size();
    size_t entered = 0;  // Blocks that begin below the end of the item.
    size_t left = 0;     // Blocks that end at or below its begin.
    int64_t fixed = 0;   // Fixed blocks in the way.
    double cost = 0;
    double best_cost = 0;
    int64_t best = -1;
    const auto is_fixed = [&](int32_t other) { return instance_.fixed[other] >= 0 ? 1 : 0; };
    const auto consider = [&](int64_t begin) {
      const int64_t end = begin + size;
      while (entered < count && starts[entered].begin < end) {
        if constexpr (kFixed) fixed += is_fixed(starts[entered].item);
        cost += starts[entered++].weight;
      }
      while (left < count && ends[left].end <= begin) {
        if constexpr (kFixed) fixed -= is_fixed(ends[left].item);
        cost -= ends[left++].weight;
      }
      if (kFixed && fixed > 0) return;
      double scaled = cost;
      if (taste_.jitter > 0) scaled *= 1 + taste_.jitter * noise_.next();
      if (best >= 0 && scaled >= best_cost) return;
      best_cost = scaled;
      best = begin;
    };
    consider(0);
    size_t above = 0;  // Next candidates: right above ends[above],
    size_t below = 0;  // and right below starts[below].
    while (below < count && starts[below].begin < size) ++below;
    while (above < count || below < count) {
      const int64_t up = above < count ? align_up(ends[above].end, align) : INT64_MAX;
      const int64_t down =
          below < count ? align_down(starts[below].begin - size, align) : INT64_MAX;
      const int64_t begin = std::min(up, down);
      if (begin >= highest) break;
      up <= down ? ++above : ++below;
      consider(begin);
    }
    consider(highest);
    return best;
  }

  const Instance& instance_;
  const Conflicts& conflicts_;
  const Taste taste_;
  const int64_t height_;
  const int64_t patience_;
  int64_t left_;         // Nodes left.
  int64_t waiting_ = 0;  // Sum of the sizes of homeless items.
  std::vector<double> growth_;
  std::vector<double> priority_;
  std::vector<double> cost_;
  std::vector<Slot> slots_;
  std::priority_queue<std::pair<double, int32_t>> unplaced_;
  Blocks blocks_;
  Noise noise_;
  bool any_fixed_ = false;
};

}  // namespace

bool repair(const Instance& instance, const Conflicts& conflicts, const std::vector<double>& crowd,
            const RepairOptions& options, Offsets& offsets, int64_t& nodes) {
  Repair repair(instance, conflicts, crowd, options);
  const bool done = repair.run(offsets);
  nodes += options.max_nodes - repair.left();
  if (done) offsets = repair.offsets();
  return done;
}

std::vector<double> crowd_of(const Instance& instance) {
  std::vector<int64_t> load(instance.sections + 1, 0);
  for (int32_t i = 0; i < instance.count(); ++i) {
    for (const Sections& range : instance.lifetime(i)) {
      load[range.first] += instance.size[i];
      load[range.last] -= instance.size[i];
    }
  }
  for (size_t s = 1; s < load.size(); ++s) load[s] += load[s - 1];
  const auto max = static_cast<double>(*std::max_element(load.begin(), load.end()));
  std::vector<double> crowd;
  for (int32_t i = 0; i < instance.count(); ++i) {
    int64_t highest = 0;
    for (const Sections& range : instance.lifetime(i)) {
      highest = std::max(highest,
                         *std::max_element(load.begin() + range.first, load.begin() + range.last));
    }
    crowd.push_back(static_cast<double>(highest) / max);
  }
  return crowd;
}

}  // namespace sluice::planner
