#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

namespace exe {
struct Executable;
}

namespace report {

/// Describes a plan in at most 25 lines: whether it fits, the largest objects of each memory, and
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

/// Counts of one feed in one process since it was bound, of all replicas. The *host* is the source
/// of an infeed or the sink of an outfeed. docs/report_schema.md explains the counts.
struct FeedReport {
  std::string name = {};
  bool input = true;                 ///< Whether it is an infeed.
  int64_t depth = 0;                 ///< Elements of a replica that may be in the ring.
  int64_t slots = 0;                 ///< Slots of the ring of `occupancy`.
  int64_t moved = 0;                 ///< Elements that the source made or the sink took.
  int64_t used = 0;                  ///< Elements that runs read or stored.
  int64_t bytes = 0;                 ///< Bytes of `moved` elements.
  double host_seconds = 0;           ///< Time in FeedSource::next() or FeedSink::take().
  double run_seconds = 0;            ///< Time of the runs that use the feed.
  FeedWaits waits_for_host = {};     ///< A device waited: the ring was empty, for an outfeed full.
  FeedWaits waits_for_program = {};  ///< The host waited in a run: the ring was full, or empty.
  FeedWaits waits_at_end = {};       ///< Runs waited at their end for the sink.
  /// Histogram: [k] counts the entries before which the ring held k elements of a replica, for k
  /// from 0 to `slots`.
  std::vector<int64_t> occupancy = {};

  /// Returns the elements that the host alone moves in a second; 0 before the first.
  double elements_per_second() const;
  /// Returns the mean number of elements in the ring before an entry; 0 before the first.
  double mean_occupancy() const;
};

}  // namespace report
}  // namespace sluice
