#include "race_check.h"

#include <algorithm>

#include "sluice/base/error.h"

namespace sluice::opaque {
namespace {

constexpr size_t kMarks = 256;

int64_t at(const std::vector<int64_t>& clock, int queue) {
  const auto q = static_cast<size_t>(queue);
  return q < clock.size() ? clock[q] : 0;
}

void join(std::vector<int64_t>& clock, const std::vector<int64_t>& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t q = 0; q < other.size(); ++q) clock[q] = std::max(clock[q], other[q]);
}

std::string describe(int queue, int64_t number, const std::string& name) {
  return fmt::format("command {} of queue {} ({})", number, queue, name);
}

}  // namespace

RaceCheck::Queue& RaceCheck::queue(int index) {
  const auto q = static_cast<size_t>(index);
  if (queues_.size() <= q) queues_.resize(q + 1);
  return queues_[q];
}

// Returns the clock of a mark, or of the first known mark after it. Null if the mark was not made
// up to that position.
const RaceCheck::Clock* RaceCheck::clock_of(int of, int64_t mark, int64_t position) {
  for (const Mark& m : queue(of).marks) {
    if (m.mark >= mark) return m.position <= position ? &m.clock : nullptr;
  }
  return nullptr;
}

// Makes `at` a boundary of segments.
void RaceCheck::split(uint64_t at) {
  auto next = segments_.upper_bound(at);
  if (next == segments_.begin()) return;
  const auto found = std::prev(next);
  if (found->first == at || found->second.end <= at) return;
  segments_.emplace_hint(next, at, found->second);
  found->second.end = at;
}

// Makes segments that cover exactly this range.
void RaceCheck::cover(const Range& range) {
  split(range.begin);
  split(range.end);
  uint64_t begin = range.begin;
  for (auto s = segments_.lower_bound(begin); begin < range.end; ++s) {
    const uint64_t end = s == segments_.end() ? range.end : std::min(s->first, range.end);
    if (begin < end) s = segments_.emplace_hint(s, begin, Segment{end, {}, {}});
    begin = s->second.end;
  }
}

// Checks bytes that a command touches next, or the host if `command` is null.
void RaceCheck::check(const Segment& segment, bool writes, const Clock& clock,
                      const Command* command) {
  const auto check_order = [&](const Command& earlier, const char* how) {
    if (earlier.queue < 0 || at(clock, earlier.queue) >= earlier.number) return;
    fail(
        ErrorKind::kInternal,
        "opaque: {} {} bytes that {} {}, and nothing orders them: a wait for a mark is missing",
        command == nullptr ? "the host" : describe(command->queue, command->number, *command->name),
        writes ? "writes" : "reads", describe(earlier.queue, earlier.number, *earlier.name), how);
  };
  check_order(segment.writer, "writes");
  if (!writes) return;
  for (const Command& reader : segment.readers) check_order(reader, "reads");
}

void RaceCheck::touch(const Touch& touch, const Command& command, const Clock& clock) {
  if (touch.range.begin == touch.range.end) return;
  cover(touch.range);
  const auto begin = segments_.find(touch.range.begin);
  const auto end = segments_.lower_bound(touch.range.end);
  for (auto s = begin; s != end; ++s) {
    check(s->second, touch.writes, clock, &command);
    if (touch.writes) continue;
    auto& readers = s->second.readers;
    const auto own = std::find_if(readers.begin(), readers.end(),
                                  [&](const Command& c) { return c.queue == command.queue; });
    (own == readers.end() ? readers.emplace_back() : *own) = command;
  }
  if (!touch.writes) return;
  segments_.erase(begin, end);
  segments_.emplace(touch.range.begin, Segment{touch.range.end, command, {}});
}

void RaceCheck::add(int q, int64_t number, std::string_view name, std::span<const Touch> touches) {
  if (!enabled_) return;
  const std::lock_guard lock(mutex_);
  auto known = names_.find(name);
  if (known == names_.end()) known = names_.emplace(name).first;
  Clock& clock = queue(q).clock;
  join(clock, host_);
  if (clock.size() <= static_cast<size_t>(q)) clock.resize(static_cast<size_t>(q) + 1);
  // A command does not race with itself.
  clock[static_cast<size_t>(q)] = number;
  for (const Touch& t : touches) touch(t, {q, number, &*known}, clock);
}

void RaceCheck::add_mark(int q, int64_t mark, int64_t position) {
  if (!enabled_) return;
  const std::lock_guard lock(mutex_);
  Queue& of = queue(q);
  of.marks.push_back({mark, position, of.clock});
  if (of.marks.size() > kMarks) of.marks.pop_front();
}

void RaceCheck::wait(int q, int other, int64_t mark, int64_t position) {
  if (!enabled_) return;
  const std::lock_guard lock(mutex_);
  queue(std::max(q, other));
  const Clock* const clock = clock_of(other, mark, position);
  if (clock != nullptr) join(queue(q).clock, *clock);
}

void RaceCheck::know(int q, int64_t mark, int64_t position) {
  if (!enabled_) return;
  const std::lock_guard lock(mutex_);
  const Clock* const clock = clock_of(q, mark, position);
  if (clock != nullptr) join(host_, *clock);
}

void RaceCheck::know_all(int q) {
  if (!enabled_) return;
  const std::lock_guard lock(mutex_);
  join(host_, queue(q).clock);
}

void RaceCheck::touch_by_host(const Touch& touch) {
  if (!enabled_ || touch.range.begin == touch.range.end) return;
  const std::lock_guard lock(mutex_);
  cover(touch.range);
  for (auto s = segments_.find(touch.range.begin);
       s != segments_.end() && s->first < touch.range.end; ++s)
    check(s->second, touch.writes, host_, nullptr);
}

void RaceCheck::forget(const Range& range) {
  if (!enabled_) return;
  const std::lock_guard lock(mutex_);
  split(range.begin);
  split(range.end);
  segments_.erase(segments_.lower_bound(range.begin), segments_.lower_bound(range.end));
}

}  // namespace sluice::opaque
