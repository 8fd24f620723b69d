#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/runtime/events.h"

namespace sluice::runtime {

/// Number of waits, and their time.
struct FeedWaits {
  int64_t count = 0;
  int64_t nanoseconds = 0;
};

/// Counts of a feed since it was bound, in this process. The *host* is the source of an infeed or
/// the sink of an outfeed. The time of waits includes a wait in progress. Elements of all replicas
/// count.
struct FeedCounters {
  std::string name;
  bool input = true;
  int64_t depth = 0;                 ///< As exe::Feed::depth.
  int64_t moved = 0;                 ///< Elements that the source made or the sink took.
  int64_t used = 0;                  ///< Elements that runs read or stored.
  int64_t bytes = 0;                 ///< Bytes of `moved` elements.
  int64_t host_nanoseconds = 0;      ///< Time in next() or take().
  int64_t run_nanoseconds = 0;       ///< Time of the runs that use the feed.
  FeedWaits waits_for_host = {};     ///< Waits of strands: the ring was empty or full.
  FeedWaits waits_for_program = {};  ///< Waits of the feed's thread, in runs.
  FeedWaits waits_at_end = {};       ///< Waits of runs for the sink of an outfeed.
  /// Histogram: [k] counts the entries before which the ring held k elements of a replica, from 0
  /// to its slots. Counts one field: the first with the fewest slots.
  std::vector<int64_t> occupancy = {};
};

/// Adds to a count that one thread changes at a time and any thread reads.
inline void add_to(std::atomic<int64_t>& count, int64_t more) {
  count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

/// The time that runs have taken, in nanoseconds. It stands still between runs. Any thread reads.
class RunClock {
 public:
  void reset() { value_ = 0; }
  void start() { value_ = read() - EventRing::now(); }
  void stop() { value_ = read(); }
  int64_t read() const {
    for (;;) {
      const int64_t value = value_.load();
      const int64_t time = value < 0 ? value + EventRing::now() : value;
      if (value_.load() == value) return time;
    }
  }

 private:
  /// During a run, the time minus that of the steady clock, which is negative; else the time.
  std::atomic<int64_t> value_{0};
};

/// Counts waits and their time on a RunClock. One thread at a time counts, and any thread reads.
class WaitCounter {
 public:
  void reset() {
    count_ = time_ = 0;
    since_ = kNone;
  }
  bool waits() const { return since() != kNone; }
  /// Begin of the wait in progress.
  int64_t since() const { return since_.load(std::memory_order_relaxed); }
  void begin(int64_t now) {
    add_to(count_, 1);
    since_.store(now, std::memory_order_relaxed);
  }
  /// Ends the wait in progress, if there is one.
  void end(int64_t now) {
    if (!waits()) return;
    const int64_t time = now - since();
    // In this order, no reader counts the wait twice.
    since_.store(kNone, std::memory_order_relaxed);
    time_.store(time_.load(std::memory_order_relaxed) + time, std::memory_order_release);
  }
  /// Adds the waits to a sum.
  void add_to_sum(FeedWaits& sum, int64_t now) const {
    const int64_t time = time_.load(std::memory_order_acquire);
    const int64_t begin = since();
    sum.count += count_.load(std::memory_order_relaxed);
    sum.nanoseconds += time + (begin == kNone ? 0 : std::max<int64_t>(0, now - begin));
  }

 private:
  static constexpr int64_t kNone = -1;
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> time_{0};
  std::atomic<int64_t> since_{kNone};
};

/// Adds the time of its scope to a sum that one thread changes at a time.
class TimedScope {
 public:
  explicit TimedScope(std::atomic<int64_t>& sum) : sum_(sum), begin_(EventRing::now()) {}
  ~TimedScope() { add_to(sum_, EventRing::now() - begin_); }
  TimedScope(const TimedScope&) = delete;
  TimedScope& operator=(const TimedScope&) = delete;

 private:
  std::atomic<int64_t>& sum_;
  const int64_t begin_;
};

}  // namespace sluice::runtime
