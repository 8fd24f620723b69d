#include "sluice/planner/exact/stack_search.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <numeric>
#include <tuple>
#include <utility>

namespace sluice::planner {
namespace {

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Links items of equal size, alignment and lifetime without a fixed offset into rings.
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

}  // namespace

Refuted::Refuted(int64_t expected)
    : slots_(std::bit_ceil(static_cast<size_t>(std::clamp<int64_t>(expected, 64, 1 << 20)))) {}

StackSearch::StackSearch(const Instance& instance, const Conflicts& conflicts, int64_t height,
                         Refuted& refuted)
    : instance_(instance),
      conflicts_(conflicts),
      height_(height),
      refuted_(refuted),
      first_(instance.buffer.size()),
      last_(instance.buffer.size()),
      by_first_(instance.buffer.size()),
      twins_(make_twins(instance)),
      alive_begin_(instance.sections + 1, 0) {
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

Outcome StackSearch::run(std::vector<int32_t> rank, int64_t max_nodes) {
  rank_ = std::move(rank);
  left_ = max_nodes - static_cast<int64_t>(alive_.size());
  const size_t count = by_first_.size();
  offsets_.assign(count, -1);
  waits_.assign(count, 1);
  states_.resize(count);
  waiting_.assign(instance_.sections, 0);
  witness_.resize(waiting_.size());
  for (size_t s = 0; s < witness_.size(); ++s) witness_[s] = alive_[alive_begin_[s]];
  for (int32_t i = 0; i < instance_.count(); ++i) {
    const int64_t base = std::max<int64_t>(instance_.fixed[i], 0);
    states_[i] = {base, base};
    for_sections(i, [&](int32_t s) { waiting_[s] += instance_.size[i]; });
  }
  list_ = by_first_;
  return solve_all();
}

void StackSearch::change(int32_t item, const State& state) {
  if (states_[item] == state) return;
  changes_.push_back({item, states_[item]});
  states_[item] = state;
}

void StackSearch::undo_changes(size_t count) {
  while (changes_.size() > count) {
    states_[changes_.back().item] = changes_.back().before;
    changes_.pop_back();
  }
}

// Places an item at its base. Returns false if it overlaps a fixed item that waits.
bool StackSearch::put(int32_t item) {
  const int64_t end = states_[item].base + instance_.size[item];
  offsets_[item] = states_[item].base;
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
      change(other, {base, std::max(base, state.min)});
    }
  }
  return good;
}

void StackSearch::take_back(int32_t item, size_t changes) {
  undo_changes(changes);
  for_sections(item, [&](int32_t s) { waiting_[s] += instance_.size[item]; });
  waits_[item] = 1;
}

// The lowest offset at which the item can rest on a waiting neighbour; kNever if none waits.
int64_t StackSearch::min_on_others(int32_t item) {
  int64_t end = kNever;
  const auto neighbours = conflicts_.of(item);
  left_ -= static_cast<int64_t>(neighbours.size());
  for (const int32_t other : neighbours) {
    if (waits_[other]) end = std::min(end, min_end(other));
  }
  return end == kNever ? kNever : align_up(end, instance_.align[item]);
}

// Raises `min` of the item and of its twins, after the item failed at its base.
void StackSearch::raise(int32_t item) {
  const int64_t base = states_[item].base;
  int32_t twin = item;
  do {
    if (waits_[twin]) {
      change(twin, {base, std::max(states_[twin].min, min_on_others(twin))});
    }
    twin = twins_[twin];
  } while (twin != item);
}

// Splits list_[begin, end) where no lifetime spans the cut, and appends the parts to parts_. The
// smallest part is first, because it fails the fastest.
void StackSearch::split(size_t begin, size_t end) {
  Level& level = levels_.back();
  level.first_part = level.next_part = parts_.size();
  int32_t reach = INT32_MIN;
  for (size_t k = begin; k < end; ++k) {
    if (first_[list_[k]] >= reach) parts_.push_back({k, k});
    reach = std::max(reach, last_[list_[k]]);
    parts_.back().end = k + 1;
  }
  std::stable_sort(parts_.begin() + static_cast<std::ptrdiff_t>(level.first_part), parts_.end(),
                   [](const Subproblem& a, const Subproblem& b) { return a.size() < b.size(); });
}

// The loop uses levels_ as its stack: with many items, recursion could overflow the thread's stack.
Outcome StackSearch::solve_all() {
  parts_.clear();
  levels_.assign(1, Level());
  split(0, list_.size());
  Outcome outcome = Outcome::kFound;
  while (true) {
    // The parts of the last level are at the end of parts_.
    if (outcome == Outcome::kFound && levels_.back().next_part < parts_.size()) {
      outcome = enter(parts_[levels_.back().next_part++]);
      continue;
    }
    parts_.resize(levels_.back().first_part);
    if (levels_.size() == 1) return outcome;
    outcome = leave(outcome);
  }
}

// Starts to solve a part. Returns kFound if it has a plan, or if its first item was placed and the
// parts of the rest are next.
Outcome StackSearch::enter(Subproblem part) {
  if (part.size() == 1) {
    const int32_t item = list_[part.begin];
    offsets_[item] = states_[item].base;
    return offsets_[item] + instance_.size[item] <= height_ ? Outcome::kFound : Outcome::kRefuted;
  }
  const uint64_t key = hash(part);
  if (refuted_.contains(key)) return Outcome::kRefuted;
  Level& level = levels_.emplace_back();
  level.part = part;
  level.key = key;
  level.changes = changes_.size();
  return try_next();
}

// Places the next item of the last level's part, or ends that level.
Outcome StackSearch::try_next() {
  Level& level = levels_.back();
  const Subproblem part = level.part;
  for (int32_t item = next(part); item >= 0; item = next(part)) {
    if (left_ <= 0) return finish(Outcome::kGaveUp);
    level.item = item;
    level.put_changes = changes_.size();
    level.list_begin = list_.size();
    if (put(item)) {
      for (size_t k = part.begin; k < part.end; ++k) {
        if (list_[k] != item) list_.push_back(list_[k]);
      }
      split(level.list_begin, list_.size());
      return Outcome::kFound;
    }
    take_back(item, level.put_changes);
    // A fixed item cannot be raised, and no waiting item fits below it.
    if (is_fixed(item)) break;
    raise(item);
  }
  return finish(Outcome::kRefuted);
}

// Removes the item of the last level, after the rest of its part had `outcome`. Then ends the level
// or tries the next item.
Outcome StackSearch::leave(Outcome outcome) {
  const Level& level = levels_.back();
  list_.resize(level.list_begin);
  take_back(level.item, level.put_changes);
  if (outcome != Outcome::kRefuted || is_fixed(level.item)) return finish(outcome);
  raise(level.item);
  return try_next();
}

Outcome StackSearch::finish(Outcome outcome) {
  undo_changes(levels_.back().changes);
  if (outcome == Outcome::kRefuted) refuted_.insert(levels_.back().key);
  levels_.pop_back();
  return outcome;
}

// Returns the item to try next, or -1 if the part has no plan.
int32_t StackSearch::next(Subproblem part) {
  left_ -= static_cast<int64_t>(part.size());
  int64_t lowest_end = kNever;
  int32_t last = 0;
  int32_t best = -1;
  for (size_t k = part.begin; k < part.end; ++k) {
    const int32_t item = list_[k];
    const State& state = states_[item];
    if (state.min > state.base) {
      const int64_t min = min_on_others(item);
      if (min > state.min) change(item, {state.base, min});
    }
    if (state.min > height_ - instance_.size[item]) return -1;
    lowest_end = std::min(lowest_end, state.base + instance_.size[item]);
    last = std::max(last, last_[item]);
    if (state.min > state.base) continue;
    if (best < 0 || state.base < states_[best].base ||
        (state.base == states_[best].base && rank_[item] < rank_[best])) {
      best = item;
    }
  }
  if (best < 0 || states_[best].base >= lowest_end) return -1;
  return fits(first_[list_[part.begin]], last) ? best : -1;
}

// Returns whether, in each section, some waiting item can begin low enough for all waiting items of
// the section to fit.
bool StackSearch::fits(int32_t first, int32_t last) {
  left_ -= last - first;
  for (int32_t s = first; s < last; ++s) {
    if (waiting_[s] == 0) continue;
    const int64_t limit = height_ - waiting_[s];
    const auto begins = [&](int32_t item) { return waits_[item] && states_[item].min <= limit; };
    if (begins(witness_[s])) continue;
    const auto end = alive_.begin() + alive_begin_[s + 1];
    const auto witness = std::find_if(alive_.begin() + alive_begin_[s], end, begins);
    if (witness == end) return false;
    witness_[s] = *witness;
  }
  return true;
}

uint64_t StackSearch::hash(Subproblem part) const {
  uint64_t sum = 0;
  for (size_t k = part.begin; k < part.end; ++k) {
    const int32_t item = list_[k];
    const auto seed = static_cast<uint64_t>(item) + 1;
    sum += mix(mix(mix(seed) + static_cast<uint64_t>(states_[item].base)) +
               static_cast<uint64_t>(states_[item].min));
  }
  return sum;
}

}  // namespace sluice::planner
