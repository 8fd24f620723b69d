#include "sluice/planner/validate.h"

#include <algorithm>
#include <map>

#include "sluice/base/error.h"

namespace sluice::planner {
namespace {

template <typename... Args>
Verdict broken(Rule rule, fmt::format_string<Args...> format, Args&&... args) {
  return {rule,
          fmt::format("{}: {}", to_string(rule), fmt::format(format, std::forward<Args>(args)...))};
}

bool lives(const Buffer& buffer) {
  for (const Interval& interval : buffer.lifetime) {
    if (interval.begin < interval.end) return true;
  }
  return false;
}

// The birth or death of a buffer.
struct Event {
  int64_t step;
  bool birth;
  size_t buffer;
};

std::vector<Event> events_of(const Problem& problem) {
  std::vector<Event> events;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    if (problem.buffers[i].size == 0) continue;
    for (const Interval& interval : problem.buffers[i].lifetime) {
      if (interval.begin >= interval.end) continue;
      events.push_back({interval.begin, true, i});
      events.push_back({interval.end, false, i});
    }
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    if (a.step != b.step) return a.step < b.step;
    if (a.birth != b.birth) return b.birth;  // Deaths first: lifetimes are half open.
    return a.buffer < b.buffer;
  });
  return events;
}

// Walks through time with the live buffers in order of offset. As long as they are disjoint, it
// suffices to compare a new buffer with its neighbours below and above.
Verdict check_overlap(const Problem& problem, const Solution& solution) {
  std::map<int64_t, size_t> alive;                    // Offset -> buffer.
  std::vector<int> count(problem.buffers.size(), 0);  // Live intervals; they may overlap.
  for (const Event& event : events_of(problem)) {
    const size_t i = event.buffer;
    const int64_t begin = solution.offsets[i];
    const int64_t end = begin + problem.buffers[i].size;
    if (!event.birth) {
      if (--count[i] == 0) alive.erase(begin);
      continue;
    }
    if (count[i]++ > 0) continue;
    const auto above = alive.lower_bound(begin);
    size_t other = i;
    if (above != alive.end() && above->first < end) other = above->second;
    if (above != alive.begin()) {
      const auto below = std::prev(above);
      if (below->first + problem.buffers[below->second].size > begin) other = below->second;
    }
    if (other != i) {
      const int64_t from = solution.offsets[other];
      return broken(Rule::kBadOverlap, "at step {} '{}' is at [{}, {}) and '{}' at [{}, {})",
                    event.step, problem.buffers[other].name, from,
                    from + problem.buffers[other].size, problem.buffers[i].name, begin, end);
    }
    alive.emplace(begin, i);
  }
  return {};
}

}  // namespace

const char* to_string(Rule rule) {
  switch (rule) {
    case Rule::kOk:
      return "ok";
    case Rule::kBadCount:
      return "bad count";
    case Rule::kBadOffset:
      return "bad offset";
    case Rule::kBadAlignment:
      return "bad alignment";
    case Rule::kBadFixedOffset:
      return "bad fixed offset";
    case Rule::kBadOverlap:
      return "bad overlap";
    case Rule::kBadHeight:
      return "bad height";
    case Rule::kBadBound:
      return "bad bound";
    case Rule::kBadCapacity:
      return "bad capacity";
  }
  return "unknown rule";
}

Verdict validate(const Problem& problem, const Solution& solution) {
  const size_t count = problem.buffers.size();
  if (solution.offsets.size() != count) {
    return broken(Rule::kBadCount, "{} offsets for {} buffers", solution.offsets.size(), count);
  }
  int64_t height = 0;
  for (size_t i = 0; i < count; ++i) {
    const Buffer& buffer = problem.buffers[i];
    const int64_t offset = solution.offsets[i];
    int64_t end = 0;
    if (offset < 0 || buffer.size < 0 || __builtin_add_overflow(offset, buffer.size, &end)) {
      return broken(Rule::kBadOffset, "'{}' of {} bytes is at {}", buffer.name, buffer.size,
                    offset);
    }
    if (buffer.alignment < 1 || offset % buffer.alignment != 0) {
      return broken(Rule::kBadAlignment, "'{}' is at {}, not a multiple of {}", buffer.name, offset,
                    buffer.alignment);
    }
    if (buffer.fixed_offset && offset != *buffer.fixed_offset) {
      return broken(Rule::kBadFixedOffset, "'{}' is at {} instead of {}", buffer.name, offset,
                    *buffer.fixed_offset);
    }
    if (buffer.size > 0 && lives(buffer)) height = std::max(height, end);
  }
  if (Verdict verdict = check_overlap(problem, solution); !verdict) return verdict;
  if (solution.height != height) {
    return broken(Rule::kBadHeight, "the height is {}, the topmost buffer ends at {}",
                  solution.height, height);
  }
  const int64_t bound = live_set_bound(problem);
  if (solution.bound != bound || bound > height) {
    return broken(Rule::kBadBound, "the bound is {} instead of {}, the height {}", solution.bound,
                  bound, height);
  }
  if (problem.capacity && height > *problem.capacity) {
    return broken(Rule::kBadCapacity, "the height {} exceeds the capacity {}", height,
                  *problem.capacity);
  }
  return {};
}

}  // namespace sluice::planner
