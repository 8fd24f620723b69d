#include "sluice/planner/problem.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "sluice/base/checked.h"
#include "sluice/planner/intervals.h"

namespace sluice::planner {
namespace {

void check(const Buffer& buffer) {
  require(buffer.size >= 0, "buffer '{}': size must be at least 0, got {}", buffer.name,
          buffer.size);
  require(buffer.alignment >= 1, "buffer '{}': alignment must be at least 1, got {}", buffer.name,
          buffer.alignment);
  if (!buffer.fixed_offset) return;
  const int64_t offset = *buffer.fixed_offset;
  require(offset >= 0, "buffer '{}': fixed offset must be at least 0, got {}", buffer.name, offset);
  require(offset % buffer.alignment == 0,
          "buffer '{}': fixed offset must be a multiple of the alignment {}, got {}", buffer.name,
          buffer.alignment, offset);
  checked_add(offset, buffer.size);
}

struct SizeChange {
  int64_t step;
  int64_t change;  // Change of the sum of rounded sizes.
  int64_t slack;   // Bytes added by rounding the buffer that enters (change > 0) or leaves.
};

}  // namespace

int64_t alignment_unit(const Problem& problem) {
  int64_t unit = 0;
  for (const Buffer& buffer : problem.buffers) {
    check(buffer);
    if (needs_bytes(buffer)) unit = std::gcd(unit, buffer.alignment);
  }
  return std::max<int64_t>(unit, 1);
}

std::vector<Interval> normalized(const std::vector<Interval>& lifetime) {
  std::vector<Interval> sorted;
  for (const Interval& interval : lifetime) {
    if (interval.begin < interval.end) sorted.push_back(interval);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> merged;
  for (const Interval& interval : sorted) {
    if (!merged.empty() && interval.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, interval.end);
    } else {
      merged.push_back(interval);
    }
  }
  return merged;
}

bool needs_bytes(const Buffer& buffer) {
  return buffer.size > 0 &&
         std::any_of(buffer.lifetime.begin(), buffer.lifetime.end(),
                     [](const Interval& interval) { return interval.begin < interval.end; });
}

int64_t live_set_bound(const Problem& problem) {
  const int64_t unit = alignment_unit(problem);
  int64_t bound = 0;
  std::vector<SizeChange> events;
  for (const Buffer& buffer : problem.buffers) {
    if (!needs_bytes(buffer)) continue;
    const int64_t rounded = round_up(buffer.size, unit);
    for (const Interval& interval : normalized(buffer.lifetime)) {
      events.push_back({interval.begin, rounded, rounded - buffer.size});
      events.push_back({interval.end, -rounded, rounded - buffer.size});
    }
    if (buffer.fixed_offset) bound = std::max(bound, *buffer.fixed_offset + buffer.size);
  }
  std::sort(events.begin(), events.end(), [](const SizeChange& a, const SizeChange& b) {
    return a.step != b.step ? a.step < b.step : a.change < b.change;
  });
  // Count the live buffers of each slack to know the largest one. Fewer than `unit` values occur.
  std::map<int64_t, int64_t> slacks;
  int64_t sum = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    sum = checked_add(sum, events[i].change);
    if (events[i].change > 0) {
      ++slacks[events[i].slack];
    } else if (--slacks[events[i].slack] == 0) {
      slacks.erase(events[i].slack);
    }
    const bool step_ends = i + 1 == events.size() || events[i + 1].step != events[i].step;
    if (step_ends && !slacks.empty()) bound = std::max(bound, sum - slacks.rbegin()->first);
  }
  return bound;
}

}  // namespace sluice::planner
