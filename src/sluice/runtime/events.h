#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sluice/base/numbers/ring.h"
#include "sluice/exe/executable.h"

namespace sluice::runtime {

/// An interval in which a worker or an I/O queue ran a step, or waited until it could begin. Times
/// are in nanoseconds of the steady clock.
struct Event {
  const exe::Step* step = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  bool waits = false;
};

/// Number of times that a transfer, a message or a collective ran in the last run of a replica.
struct StepRuns {
  int replica = 0;
  const exe::Step* step = nullptr;
  int64_t runs = 0;
};

/// The last events of one worker or I/O queue in a run. One thread at a time adds events, which
/// allocates nothing. A step begins where the one before it ended, so each costs one look at the
/// clock.
class EventRing {
 public:
  explicit EventRing(int64_t capacity) : events_(capacity) {}

  /// Returns the bytes of memory that hold the events.
  int64_t bytes() const { return capacity() * static_cast<int64_t>(sizeof(Event)); }
  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  /// Prepares a run.
  void clear() { added_ = blocked_since_ = 0; }
  /// The next step begins now, or waits from now on.
  void resume() { last_ = now(); }
  /// The next step cannot begin yet.
  void block() {
    if (blocked_since_ == 0) blocked_since_ = last_;
  }
  /// The step has ended. It began where the last step ended, at the last resume().
  void end(const exe::Step* step) {
    if (blocked_since_ != 0) add({step, blocked_since_, last_, true});
    blocked_since_ = 0;
    const int64_t at = now();
    add({step, last_, at, false});
    last_ = at;
  }

  /// Returns the number of events that were overwritten.
  int64_t lost() const { return added_ > capacity() ? added_ - capacity() : 0; }
  /// Returns the events of the run that are left, in their order.
  std::vector<Event> events() const {
    std::vector<Event> all;
    for (int64_t i = lost(); i < added_; ++i) all.push_back(events_[i]);
    return all;
  }

 private:
  int64_t capacity() const { return events_.size(); }
  void add(const Event& event) { events_[added_++] = event; }

  Ring<Event> events_;
  int64_t added_ = 0;
  int64_t last_ = 0;
  int64_t blocked_since_ = 0;  ///< 0: the next step does not wait.
};

/// The events of a worker of a device, or of one of its I/O queues.
struct Lane {
  int replica = 0;
  exe::DeviceId device{0};
  int32_t queue = 0;   ///< 0: the compute queue.
  int32_t worker = 0;  ///< Worker of the compute queue.
  EventRing ring;
};

}  // namespace sluice::runtime
