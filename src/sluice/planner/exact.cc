#include "sluice/planner/exact.h"

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <numeric>
#include <tuple>
#include <utility>

#include "sluice/planner/repair.h"

namespace sluice::planner {
namespace {

// Above every height that is searched; sums of it with a size and an alignment stay in int64.
constexpr int64_t kNever = INT64_MAX / 4;
// The search recurses once for each item and keeps a list of the rest at each level.
constexpr int32_t kMostItems = 4096;

// What a search knows of an item that waits for its place.
struct State {
  // Where it lies if it is next: on top of what is placed, or at its fixed offset.
  int64_t base = 0;
  // No settled plan puts it lower. Above base: it is not next.
  int64_t least = 0;
  bool operator==(const State&) const = default;
};

// Sub-problems without a plan, by a hash of 64 bits. A new one takes the slot of an older one.
class Refuted {
 public:
  explicit Refuted(int64_t expected)
      : slots_(std::bit_ceil(static_cast<size_t>(std::clamp<int64_t>(expected, 64, 1 << 20)))) {}
  bool contains(uint64_t key) const { return slots_[key & (slots_.size() - 1)] == key; }
  void insert(uint64_t key) { slots_[key & (slots_.size() - 1)] = key; }

 private:
  std::vector<uint64_t> slots_;
};

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Links items of the same size, alignment and life that are not fixed into rings.
std::vector<int32_t> make_twins(const Instance& instance) {
  std::vector<int32_t> twins(instance.buffer.size());
  std::iota(twins.begin(), twins.end(), 0);
  auto items = twins;
  const auto compare = [&](int32_t a, int32_t b) {
    const auto traits = [&](int32_t i) {
      return std::tuple(instance.size[i], instance.align[i], instance.fixed[i]);
    };
    if (traits(a) != traits(b)) return traits(a) <=> traits(b);
    const auto x = instance.lifetime(a);
    const auto y = instance.lifetime(b);
    return std::lexicographical_compare_three_way(
        x.begin(), x.end(), y.begin(), y.end(), [](const Sections& r, const Sections& q) {
          return std::pair(r.first, r.last) <=> std::pair(q.first, q.last);
        });
  };
  std::stable_sort(items.begin(), items.end(),
                   [&](int32_t a, int32_t b) { return compare(a, b) < 0; });
  for (size_t k = 1; k < items.size(); ++k) {
    if (compare(items[k - 1], items[k]) == 0 && instance.fixed[items[k]] < 0) {
      std::swap(twins[items[k - 1]], twins[items[k]]);
    }
  }
  return twins;
}

// Builds plans up from the bottom: an item put is below all that wait and live at one time with it.
//
// If there is a plan for what waits, there is a settled one: one whose offsets have the least sum,
// so that each item lies on the floor or on another. Its lowest waiting item is at its base, and
// nothing that waits could end at or below that base: it would go there and lessen the sum. Such an
// item is tried; if that fails, it lies in every settled plan on another that waits, which raises
// its `least`. So each step either puts an item or raises it, and no plan is looked at twice.
class Search {
 public:
  Search(const Instance& instance, const Conflicts& conflicts, int64_t height, Refuted& refuted)
      : instance_(instance),
        conflicts_(conflicts),
        height_(height),
        refuted_(refuted),
        first_(instance.buffer.size()),
        last_(instance.buffer.size()),
        by_first_(instance.buffer.size()),
        twins_(make_twins(instance)),
        alive_begin_(static_cast<size_t>(instance.sections) + 1, 0) {
    for (int32_t i = 0; i < instance.count(); ++i) {
      first_[i] = instance.lifetime(i).front().first;
      last_[i] = instance.lifetime(i).back().last;
      for_sections(i, [&](int32_t s) { ++alive_begin_[s + 1]; });
    }
    std::partial_sum(alive_begin_.begin(), alive_begin_.end(), alive_begin_.begin());
    alive_.resize(alive_begin_.back());
    auto fill = alive_begin_;
    for (int32_t i = 0; i < instance.count(); ++i) {
      for_sections(i, [&](int32_t s) { alive_[fill[s]++] = i; });
    }
    std::iota(by_first_.begin(), by_first_.end(), 0);
    std::stable_sort(by_first_.begin(), by_first_.end(),
                     [&](int32_t a, int32_t b) { return first_[a] < first_[b]; });
  }

  // Of items with the same base, the one of the lowest rank is tried first.
  Outcome run(std::vector<int32_t> rank, int64_t max_nodes) {
    rank_ = std::move(rank);
    left_ = max_nodes - static_cast<int64_t>(alive_.size());
    const size_t count = by_first_.size();
    places_.assign(count, -1);
    waits_.assign(count, 1);
    states_.resize(count);
    waiting_.assign(static_cast<size_t>(instance_.sections), 0);
    witness_.resize(waiting_.size());
    for (size_t s = 0; s < witness_.size(); ++s) witness_[s] = alive_[alive_begin_[s]];
    for (int32_t i = 0; i < instance_.count(); ++i) {
      const int64_t base = std::max<int64_t>(instance_.fixed[i], 0);
      states_[i] = {base, base};
      for_sections(i, [&](int32_t s) { waiting_[s] += instance_.size[i]; });
    }
    list_ = by_first_;
    return solve_parts(0, count);
  }

  int64_t left() const { return left_; }
  const Places& places() const { return places_; }

 private:
  // Items list_[begin], …, list_[end - 1], in order of birth: all that wait in their sections.
  struct Part {
    size_t begin;
    size_t end;
    size_t size() const { return end - begin; }
  };

  struct Change {
    int32_t item;
    State before;
  };

  template <typename Action>
  void for_sections(int32_t item, Action&& action) const {
    for (const Sections& range : instance_.lifetime(item)) {
      for (int32_t s = range.first; s < range.last; ++s) action(s);
    }
  }

  bool is_fixed(int32_t item) const { return instance_.fixed[item] >= 0; }
  int64_t least_end(int32_t item) const { return states_[item].least + instance_.size[item]; }

  void change(int32_t item, const State& state) {
    if (states_[item] == state) return;
    changes_.push_back({item, states_[item]});
    states_[item] = state;
  }

  void undo_changes(size_t count) {
    while (changes_.size() > count) {
      states_[changes_.back().item] = changes_.back().before;
      changes_.pop_back();
    }
  }

  // Puts an item at its base. Returns whether that leaves the fixed ones above it alone.
  bool put(int32_t item) {
    const int64_t end = states_[item].base + instance_.size[item];
    places_[item] = states_[item].base;
    waits_[item] = 0;
    for_sections(item, [&](int32_t s) { waiting_[s] -= instance_.size[item]; });
    bool good = true;
    const auto neighbours = conflicts_.of(item);
    left_ -= static_cast<int64_t>(neighbours.size());
    for (const int32_t other : neighbours) {
      if (!waits_[other]) continue;
      const State& state = states_[other];
      if (is_fixed(other)) {
        good = good && end <= state.base;
      } else {
        const int64_t base = std::max(state.base, align_up(end, instance_.align[other]));
        change(other, {base, std::max(base, state.least)});
      }
    }
    return good;
  }

  void take_back(int32_t item, size_t changes) {
    undo_changes(changes);
    for_sections(item, [&](int32_t s) { waiting_[s] += instance_.size[item]; });
    waits_[item] = 1;
  }

  // The lowest offset of an item that lies on one that waits; kNever if none does.
  int64_t least_on_others(int32_t item) {
    int64_t end = kNever;
    const auto neighbours = conflicts_.of(item);
    left_ -= static_cast<int64_t>(neighbours.size());
    for (const int32_t other : neighbours) {
      if (waits_[other]) end = std::min(end, least_end(other));
    }
    return end == kNever ? kNever : align_up(end, instance_.align[item]);
  }

  // After a failed try at its base, which speaks for its twins too.
  void raise(int32_t item) {
    const int64_t base = states_[item].base;
    int32_t twin = item;
    do {
      if (waits_[twin]) {
        change(twin, {base, std::max(states_[twin].least, least_on_others(twin))});
      }
      twin = twins_[twin];
    } while (twin != item);
  }

  // Cuts time where no life spans the cut. The smallest part comes first: it fails the fastest.
  Outcome solve_parts(size_t begin, size_t end) {
    const size_t first_part = parts_.size();
    int32_t reach = INT32_MIN;
    for (size_t k = begin; k < end; ++k) {
      if (first_[list_[k]] >= reach) parts_.push_back({k, k});
      reach = std::max(reach, last_[list_[k]]);
      parts_.back().end = k + 1;
    }
    std::stable_sort(parts_.begin() + static_cast<std::ptrdiff_t>(first_part), parts_.end(),
                     [](const Part& a, const Part& b) { return a.size() < b.size(); });
    Outcome outcome = Outcome::kFound;
    for (size_t p = first_part; p < parts_.size() && outcome == Outcome::kFound; ++p) {
      outcome = solve_part(parts_[p]);
    }
    parts_.resize(first_part);
    return outcome;
  }

  Outcome solve_part(Part part) {
    if (part.size() == 1) {
      const int32_t item = list_[part.begin];
      places_[item] = states_[item].base;
      return places_[item] + instance_.size[item] <= height_ ? Outcome::kFound : Outcome::kRefuted;
    }
    const uint64_t key = hash(part);
    if (refuted_.contains(key)) return Outcome::kRefuted;
    const size_t changes = changes_.size();
    Outcome outcome = Outcome::kRefuted;
    for (int32_t item = next(part); item >= 0; item = next(part)) {
      if (left_ <= 0) {
        outcome = Outcome::kGaveUp;
        break;
      }
      outcome = try_next(part, item);
      // Nothing that waits fits below a fixed one that is next.
      if (outcome != Outcome::kRefuted || is_fixed(item)) break;
      raise(item);
    }
    undo_changes(changes);
    if (outcome == Outcome::kRefuted) refuted_.insert(key);
    return outcome;
  }

  Outcome try_next(Part part, int32_t item) {
    const size_t changes = changes_.size();
    const size_t begin = list_.size();
    Outcome outcome = Outcome::kRefuted;
    if (put(item)) {
      for (size_t k = part.begin; k < part.end; ++k) {
        if (list_[k] != item) list_.push_back(list_[k]);
      }
      outcome = solve_parts(begin, list_.size());
      list_.resize(begin);
    }
    take_back(item, changes);
    return outcome;
  }

  // The item to try, or -1 if the part has no plan.
  int32_t next(Part part) {
    left_ -= static_cast<int64_t>(part.size());
    int64_t lowest_end = kNever;
    int32_t last = 0;
    int32_t best = -1;
    for (size_t k = part.begin; k < part.end; ++k) {
      const int32_t item = list_[k];
      const State& state = states_[item];
      if (state.least > state.base) {
        const int64_t least = least_on_others(item);
        if (least > state.least) change(item, {state.base, least});
      }
      if (state.least > height_ - instance_.size[item]) return -1;
      lowest_end = std::min(lowest_end, state.base + instance_.size[item]);
      last = std::max(last, last_[item]);
      if (state.least > state.base) continue;
      if (best < 0 || state.base < states_[best].base ||
          (state.base == states_[best].base && rank_[item] < rank_[best])) {
        best = item;
      }
    }
    if (best < 0 || states_[best].base >= lowest_end) return -1;
    return fits(first_[list_[part.begin]], last) ? best : -1;
  }

  // Whether in each section one of the waiting items can begin so low that the others fit above it.
  bool fits(int32_t first, int32_t last) {
    left_ -= last - first;
    for (int32_t s = first; s < last; ++s) {
      if (waiting_[s] == 0) continue;
      const int64_t limit = height_ - waiting_[s];
      const auto begins = [&](int32_t item) {
        return waits_[item] && states_[item].least <= limit;
      };
      if (begins(witness_[s])) continue;
      const auto end = alive_.begin() + alive_begin_[s + 1];
      const auto witness = std::find_if(alive_.begin() + alive_begin_[s], end, begins);
      if (witness == end) return false;
      witness_[s] = *witness;
    }
    return true;
  }

  uint64_t hash(Part part) const {
    uint64_t sum = 0;
    for (size_t k = part.begin; k < part.end; ++k) {
      const int32_t item = list_[k];
      const auto seed = static_cast<uint64_t>(item) + 1;
      sum += mix(mix(mix(seed) + static_cast<uint64_t>(states_[item].base)) +
                 static_cast<uint64_t>(states_[item].least));
    }
    return sum;
  }

  const Instance& instance_;
  const Conflicts& conflicts_;
  const int64_t height_;
  Refuted& refuted_;
  std::vector<int32_t> first_;     // The first section of an item's life.
  std::vector<int32_t> last_;      // One past the last.
  std::vector<int32_t> by_first_;  // Items in order of birth.
  std::vector<int32_t> twins_;     // The next in the ring of items that are alike.
  std::vector<int32_t> alive_;     // Items of each section: [alive_begin_[s], alive_begin_[s + 1]).
  std::vector<int64_t> alive_begin_;
  std::vector<int32_t> rank_;
  int64_t left_ = 0;  // Nodes.
  Places places_;
  std::vector<char> waits_;       // Whether an item has no place yet.
  std::vector<State> states_;     // Of items that wait.
  std::vector<int64_t> waiting_;  // The sum of sizes that wait in a section.
  std::vector<int32_t> witness_;  // An item that showed last that the section fits.
  std::vector<int32_t> list_;     // Parts being solved, one on top of the other.
  std::vector<Part> parts_;
  std::vector<Change> changes_;
};

// Ranks by several keys, each the greatest first. Which one suits a problem cannot be told before.
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
  return count <= kMostItems ? count * count : INT64_MAX;
}

Outcome exact_search(const Instance& instance, const Conflicts& conflicts, int64_t height,
                     int64_t max_nodes, Places& places, int64_t& nodes) {
  const auto too_large = [&](int64_t units) { return units >= kNever; };
  if (max_nodes < exact_search_nodes(instance) || too_large(height) ||
      std::any_of(instance.size.begin(), instance.size.end(), too_large) ||
      std::any_of(instance.align.begin(), instance.align.end(), too_large)) {
    return Outcome::kGaveUp;
  }
  Refuted refuted(max_nodes / std::max(instance.count(), 1));
  Search search(instance, conflicts, height, refuted);
  const auto ranks = make_ranks(instance);
  int64_t left = max_nodes;
  for (int64_t slice = 4 * exact_search_nodes(instance) + 1000; left > 0; slice *= 2) {
    for (const auto& rank : ranks) {
      const int64_t most = std::min(slice, left);
      const Outcome outcome = search.run(rank, most);
      left -= most - search.left();
      nodes += most - search.left();
      if (outcome == Outcome::kFound) places = search.places();
      if (outcome != Outcome::kGaveUp) return outcome;
      if (left <= 0) break;
    }
  }
  return Outcome::kGaveUp;
}

}  // namespace sluice::planner
