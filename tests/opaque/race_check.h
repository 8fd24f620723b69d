#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory.h"

namespace sluice::opaque {

/// Bytes that a command touches.
struct Touch {
  Range range;
  bool writes = false;
};

/// Finds commands that touch the same bytes, at least one of them writing, although nothing orders
/// them. It looks at the order that the calls establish, not at the order in which commands happen
/// to run. So it needs no luck to find a wait that is missing.
///
/// Each queue has a vector clock: for each queue, the number of its last command that has ended
/// before the next command begins. A wait joins the clock of a mark. The host has a clock too: a
/// command runs after all commands that any host thread knew to have ended when it was enqueued.
/// Threads of the host share that clock, because this class cannot see how they synchronise.
///
/// Any thread may call a function.
class RaceCheck {
 public:
  /// `enabled` tells whether the functions do anything.
  explicit RaceCheck(bool enabled) : enabled_(enabled) {}

  /// Adds a command of a queue after its earlier ones. Error{kInternal} naming two commands if they
  /// race.
  void add(int queue, int64_t number, std::string_view name, std::span<const Touch> touches);
  /// Adds a mark of a queue at a position, which grows.
  void add_mark(int queue, int64_t mark, int64_t position);
  /// Lets a queue wait for the mark of another queue, if it is at this position or before.
  void wait(int queue, int other, int64_t mark, int64_t position);
  /// The host knows that the commands before a mark have ended, if the mark is at this position or
  /// before.
  void know(int queue, int64_t mark, int64_t position);
  /// The host knows that all commands of the queue have ended.
  void know_all(int queue);
  /// The host touches bytes. Error{kInternal} if a command, unless the host knows that it has
  /// ended, touches them too and one of them writes.
  void touch_by_host(const Touch& touch);
  /// Forgets all commands that touch these bytes: they are no longer memory.
  void forget(const Range& range);

 private:
  using Clock = std::vector<int64_t>;
  struct Command {
    int queue = -1;  // -1: none.
    int64_t number = 0;
    const std::string* name = nullptr;
  };
  struct Segment {  // Bytes with the same history.
    uint64_t end = 0;
    Command writer;                // The last one.
    std::vector<Command> readers;  // Since then, the last one of each queue.
  };
  struct Mark {
    int64_t mark;
    int64_t position;
    Clock clock;
  };
  struct Queue {
    Clock clock;
    std::deque<Mark> marks;  // The last few.
  };
  using Segments = std::map<uint64_t, Segment>;

  Queue& queue(int index);
  const Clock* clock_of(int queue, int64_t mark, int64_t position);
  void split(uint64_t at);
  void cover(const Range& range);
  static void check(const Segment& segment, bool writes, const Clock& clock,
                    const Command* command);
  void touch(const Touch& touch, const Command& command, const Clock& clock);

  const bool enabled_;
  std::mutex mutex_;
  std::vector<Queue> queues_;
  Clock host_;
  Segments segments_;  // Sorted by begin.
  std::set<std::string, std::less<>> names_;
};

}  // namespace sluice::opaque
