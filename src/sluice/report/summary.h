#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

namespace exe {
struct Executable;
}

namespace report {

/// Describes a plan in at most 25 lines: whether it fits, the holders of each memory's bytes, and
/// the bytes that a run moves.
std::string summary(const exe::Executable& executable);

/// The plan of a session, as a user reads it. Session::plan() returns it. The executable must
/// outlive it.
class Plan {
 public:
  explicit Plan(const exe::Executable& executable) : executable_(executable) {}

  /// Returns report::summary() of the executable.
  std::string summary() const { return report::summary(executable_); }

 private:
  const exe::Executable& executable_;
};

/// Number of waits, and the sum of their times.
struct FeedWaits {
  int64_t count = 0;
  double seconds = 0;
};

/// Counts of one feed in one process, since the feed was bound. Session::feed_statistics() returns
/// them. The *host* is the source of an infeed or the sink of an outfeed. Elements of all replicas
/// count, and waits of all replicas that run in the process.
struct FeedReport {
  std::string name = {};
  bool input = true;        ///< Whether it is an infeed.
  int64_t depth = 0;        ///< Elements of each replica that may be ahead of the program or host.
  int64_t slots = 0;        ///< Slots of the ring of `occupancy`; 0 if other processes have it.
  int64_t moved = 0;        ///< Elements that the source made or the sink took.
  int64_t used = 0;         ///< Elements that runs read or stored, or skipped after a stop.
  int64_t bytes = 0;        ///< Bytes of the `moved` elements.
  double host_seconds = 0;  ///< Time in FeedSource::next() or FeedSink::take().
  double run_seconds = 0;   ///< Time of the runs that use the feed.
  /// The program waited for the host: the ring was empty (infeed) or full (outfeed). Each device
  /// of each replica waits for itself, so the sum may exceed `run_seconds`.
  FeedWaits waits_for_host = {};
  /// The host waited for the program in runs: the ring was full (infeed) or empty (outfeed).
  FeedWaits waits_for_program = {};
  /// Runs waited at their end until the sink had taken all elements.
  FeedWaits waits_at_end = {};
  /// [k]: entries before which the ring held k elements of a replica, for k from 0 to `slots`. The
  /// entries are those of the field with the fewest slots, the first of several.
  std::vector<int64_t> occupancy = {};

  /// Returns the elements per second that the source or sink alone moves; 0 before the first.
  double elements_per_second() const;
  /// Returns the mean number of elements in the ring before an entry; 0 before the first.
  double mean_occupancy() const;
};

}  // namespace report
}  // namespace sluice
