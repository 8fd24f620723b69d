#include "sluice/planner/instance.h"

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/planner/intervals.h"

namespace sluice::planner {
namespace {

// The largest sum of sizes alive in one section, and at least the end of each fixed item; in units.
int64_t live_set_units(const Instance& instance) {
  std::vector<int64_t> change(instance.sections + 1, 0);
  int64_t bound = 0;
  for (int32_t i = 0; i < instance.count(); ++i) {
    for (const Sections& range : instance.lifetime(i)) {
      change[range.first] += instance.size[i];
      change[range.last] -= instance.size[i];
    }
    if (instance.fixed[i] >= 0) bound = std::max(bound, instance.fixed[i] + instance.size[i]);
  }
  int64_t sum = 0;
  for (const int64_t delta : change) bound = std::max(bound, sum += delta);
  return bound;
}

// A range of an item; sorted by their first sections.
struct Birth {
  Sections range;
  int32_t item;
};

std::vector<Birth> births_of(const Instance& instance) {
  std::vector<Birth> births;
  births.reserve(instance.ranges.size());
  for (int32_t i = 0; i < instance.count(); ++i) {
    for (const Sections& range : instance.lifetime(i)) births.push_back({range, i});
  }
  std::stable_sort(births.begin(), births.end(),
                   [](const Birth& a, const Birth& b) { return a.range.first < b.range.first; });
  return births;
}

}  // namespace

Instance make_instance(const Problem& problem) {
  Instance instance;
  instance.unit = alignment_unit(problem);
  std::vector<int64_t> begins;
  std::vector<Interval> lifetimes;
  instance.range_begin.push_back(0);
  int64_t total = 0;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    if (!needs_bytes(buffer)) continue;
    const int64_t rounded = round_up(buffer.size, instance.unit);
    total = checked_add(total, checked_add(rounded, buffer.alignment));
    if (buffer.fixed_offset) total = checked_add(total, *buffer.fixed_offset);
    instance.buffer.push_back(i);
    instance.size.push_back(rounded / instance.unit);
    instance.align.push_back(buffer.alignment / instance.unit);
    instance.fixed.push_back(buffer.fixed_offset ? *buffer.fixed_offset / instance.unit : -1);
    const bool usable = buffer.hint && *buffer.hint >= 0 && *buffer.hint % buffer.alignment == 0;
    instance.hint.push_back(usable ? *buffer.hint / instance.unit : -1);
    for (const Interval& interval : normalized(buffer.lifetime)) {
      lifetimes.push_back(interval);
      begins.push_back(interval.begin);
    }
    const Interval whole{lifetimes[instance.range_begin.back()].begin, lifetimes.back().end};
    int64_t length = 0;
    require(!__builtin_sub_overflow(whole.end, whole.begin, &length),
            "buffer '{}': its lifetime from {} to {} exceeds 63 bits", buffer.name, whole.begin,
            whole.end);
    instance.length.push_back(length);
    instance.range_begin.push_back(lifetimes.size());
  }
  // Two intervals overlap only if one begins in the other, so it suffices to cut time at the
  // begins.
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  const auto section = [&](int64_t step) {
    return static_cast<int32_t>(std::lower_bound(begins.begin(), begins.end(), step) -
                                begins.begin());
  };
  instance.sections = static_cast<int32_t>(begins.size());
  for (const Interval& interval : lifetimes) {
    instance.ranges.push_back({section(interval.begin), section(interval.end)});
  }
  instance.bound = live_set_units(instance);
  return instance;
}

int64_t count_conflicts(const Instance& instance) {
  // A range overlaps all others except those that end before it and those that begin after it.
  std::vector<int64_t> born(instance.sections + 1, 0);
  std::vector<int64_t> dead(instance.sections + 1, 0);
  for (const Sections& range : instance.ranges) {
    ++born[range.first];
    ++dead[range.last];
  }
  for (int32_t s = 1; s <= instance.sections; ++s) {
    born[s] += born[s - 1];
    dead[s] += dead[s - 1];
  }
  int64_t count = 0;
  for (const Sections& range : instance.ranges) {
    count += born[range.last - 1] - dead[range.first] - 1;
  }
  return count;
}

Conflicts make_conflicts(const Instance& instance) {
  const auto births = births_of(instance);
  // The sweep runs twice: it counts the neighbours, then it stores them.
  const auto sweep = [&](auto&& meet) {
    std::vector<Birth> alive;
    for (const Birth& birth : births) {
      size_t kept = 0;
      for (const Birth& other : alive) {
        if (other.range.last <= birth.range.first) continue;
        alive[kept++] = other;
        if (other.item != birth.item) meet(birth.item, other.item);
      }
      alive.resize(kept);
      alive.push_back(birth);
    }
  };
  Conflicts conflicts;
  const size_t count = instance.buffer.size();
  conflicts.begin.assign(count + 1, 0);
  sweep([&](int32_t a, int32_t b) {
    ++conflicts.begin[a + 1];
    ++conflicts.begin[b + 1];
  });
  for (size_t i = 0; i < count; ++i) conflicts.begin[i + 1] += conflicts.begin[i];
  conflicts.neighbours.resize(conflicts.begin[count]);
  std::vector<size_t> fill(conflicts.begin.begin(), conflicts.begin.end() - 1);
  sweep([&](int32_t a, int32_t b) {
    conflicts.neighbours[fill[a]++] = b;
    conflicts.neighbours[fill[b]++] = a;
  });
  if (instance.ranges.size() == count) return conflicts;

  // Two items that overlap in several ranges were stored several times: remove the duplicates.
  size_t end = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto first = conflicts.neighbours.begin() + conflicts.begin[i];
    const auto last = conflicts.neighbours.begin() + conflicts.begin[i + 1];
    std::sort(first, last);
    const auto unique = std::unique(first, last);
    conflicts.begin[i] = end;
    for (auto it = first; it != unique; ++it) conflicts.neighbours[end++] = *it;
  }
  conflicts.begin[count] = end;
  conflicts.neighbours.resize(end);
  return conflicts;
}

int64_t height_of(const Instance& instance, const Offsets& offsets) {
  int64_t height = 0;
  for (int32_t i = 0; i < instance.count(); ++i) {
    height = std::max(height, offsets[i] + instance.size[i]);
  }
  return height;
}

}  // namespace sluice::planner
