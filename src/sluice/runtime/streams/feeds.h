#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/feed.h"
#include "sluice/exe/executable.h"
#include "sluice/runtime/placement.h"
#include "sluice/runtime/process_group.h"
#include "sluice/runtime/streams/feed_counters.h"

namespace sluice::runtime {

/// Wakes threads that wait for feeds or for programs.
class FeedEvents {
 public:
  uint32_t count() const { return count_.load(); }
  void notify();
  /// Blocks until count() differs from `seen`.
  void await(uint32_t seen);
  /// Does the same, at most for `time`.
  void await(uint32_t seen, std::chrono::microseconds time);

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<int> sleepers_{0};
  std::mutex lock_;
  std::condition_variable wake_;
};

class Feed;

/// The device's side of one field of a feed in one replica. One strand uses it, for one entry after
/// another.
class FeedPort {
 public:
  FeedPort(Feed& feed, const exe::FeedRing& ring, std::byte* arena)
      : feed_(feed), ring_(ring), arena_(arena) {}

  /// Returns whether the transfer of the next entry may begin. Throws the error of the feed if it
  /// will not be ready, or if the wait exceeds the deadline.
  bool ready();
  /// Returns the slot of the next entry, which is ready.
  std::byte* next() const { return slot(used_.load(std::memory_order_relaxed)); }
  /// Ends the transfer of the next entry: its slot has been read or written.
  void done();

 private:
  friend class Feed;
  std::byte* slot(int64_t element) const { return arena_ + ring_.slot(element); }
  bool wait(int64_t element);
  /// Counts the elements that the ring holds before the transfer of `element`.
  void count(int64_t element, int64_t moved);
  void reset();

  Feed& feed_;
  const exe::FeedRing& ring_;
  std::byte* arena_;
  std::atomic<int64_t> used_{0};  ///< Elements read from or stored to the ring.
  WaitCounter waits_;
  int64_t counted_ = -1;                         ///< Element that count() has seen last.
  std::vector<std::atomic<int64_t>> occupancy_;  ///< As in FeedCounters; empty: not counted.
};

/// Whether the calling thread is one that a feed made to call its source or sink.
bool on_feed_thread();

/// The part of a feed that this process has: a thread of its own moves elements between the source
/// or sink and the rings. All counts are in groups of one element for each replica.
class Feed {
 public:
  struct Shared {
    FeedEvents events;
    std::atomic<int> waiting{0};           ///< Ports that wait.
    std::atomic<bool> sink_failed{false};  ///< A sink may have failed; see check_sink().
    double deadline = std::numeric_limits<double>::infinity();
    std::shared_ptr<ProcessGroup> group;  ///< Null without other processes.
  };

  /// Error{kUsage} if the rings of an outfeed belong to several processes.
  Feed(const exe::Executable& executable, const exe::Feed& plan, const Placement& placement,
       Shared& shared);
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  /// Adds the port of a field of a replica that this process runs. Replicas come in order.
  FeedPort* add_port(int replica, size_t field, std::byte* arena);
  /// Comes after the last port. Chooses the field of each replica whose ring counts its elements,
  /// and allocates memory for elements of replicas and fields that other processes run.
  void finish_ports();
  const exe::Feed& plan() const { return plan_; }
  bool is_bound() const { return source_ != nullptr || sink_ != nullptr; }
  /// Whether this process reads or writes a ring.
  bool has_ports() const { return !own_.empty(); }
  /// Bind the feed and start from element 0. An earlier source or sink is cancelled and released.
  /// Throws the error of open(): then an earlier one stays bound, unless it is the same object.
  void bind(std::shared_ptr<FeedSource> source);
  void bind(std::shared_ptr<FeedSink> sink);
  /// Cancels the source or sink and waits until it returns. The feed can only be bound again.
  void close();

  /// Begins a run that uses `entries` elements, or fewer if a loop exits.
  void begin(int64_t entries);
  /// Waits until the sink of an outfeed has taken all elements of the run, or `stop` is set. Throws
  /// the error of the sink, or that of another process. All strands have ended. A run that uses
  /// no element does not wait.
  void flush(const std::atomic<bool>& stop);
  bool has_failed_sink() const { return !plan_.input && failed_.load(); }
  /// Throws the error of the sink if the run uses it.
  void check_sink();
  /// Ends a run. The next one begins after the elements that any ring has read, or after those that
  /// all rings have stored.
  void end();
  /// Returns the elements since bind() that all rings have read or stored.
  int64_t progress() const;
  /// Returns the counts since bind(). Any thread may call it at any time.
  FeedCounters counters() const;

 private:
  friend class FeedPort;
  template <typename End>
  void replace(std::shared_ptr<End>& bound, std::shared_ptr<End> end);
  FeedLayout layout() const;
  void start_thread();
  void serve();
  bool can_move() const;
  /// Moves the element of replica `replica_` of the next group. Returns false at the end of data.
  bool move();
  /// Goes on to the next element.
  void pass();
  void await_sink(int64_t last, const std::atomic<bool>& stop);
  void fill_views(int64_t element);
  void keep_error();
  [[noreturn]] void throw_error() const;
  /// Blocks the thread until `signal_` differs from `seen`, or until it polls again.
  void rest(uint32_t seen, bool polls);
  /// A ring has one element more to move, and `held` elements in all.
  void notify(int64_t held, int64_t slots);
  /// Throws if the element will not be ready.
  void check(int64_t element, const FeedPort& port);
  /// Throws the error of a failed process.
  void check_peers(const char* doing) const;
  [[noreturn]] void miss_deadline(int64_t element, const std::string& field) const;
  std::string field_name(const exe::FeedRing& ring) const;

  const exe::Executable& executable_;
  const exe::Feed& plan_;
  const int replicas_;
  const bool exits_;  ///< Whether a program may use fewer elements than planned.
  Shared& shared_;
  std::vector<std::unique_ptr<FeedPort>> ports_;  ///< Indexed by replica and field; null elsewhere.
  std::vector<FeedPort*> own_;                    ///< The ports that are not null.
  std::vector<std::vector<std::byte>> scratch_;   ///< Keyed by field.
  std::vector<ArrayView> in_;                     ///< Indexed by field, for next().
  std::vector<ConstArrayView> out_;               ///< Indexed by field, for take().
  std::shared_ptr<FeedSource> source_;
  std::shared_ptr<FeedSink> sink_;
  std::thread thread_;
  FeedEvents signal_;               ///< Counts events after which the thread may have work.
  std::atomic<bool> polls_{false};  ///< The thread looks for elements soon, without a signal.
  std::atomic<bool> quits_{false};
  std::atomic<bool> active_{false};   ///< A run has used the feed.
  std::atomic<int64_t> moved_{0};     ///< Groups that the source made or the sink took.
  std::atomic<int64_t> elements_{0};  ///< Elements that the source made or the sink took.
  int replica_ = 0;                   ///< Replica of the next element; the thread's.
  int64_t element_ = 0;               ///< Element that next() or take() has; the thread's.
  std::atomic<bool> ended_{false};    ///< The source has no more data.
  std::atomic<bool> failed_{false};   ///< The thread waits until the error is reported.
  std::optional<Error> error_;        ///< Set before failed_.
  std::exception_ptr cause_;          ///< The exception of the source or sink; set before failed_.
  std::atomic<bool> reported_{false};
  RunClock clock_;
  std::atomic<int64_t> host_time_{0};  ///< Nanoseconds in next() or take().
  WaitCounter waits_for_program_;      ///< The thread's.
  WaitCounter waits_at_end_;
  int64_t start_ = 0;    ///< Elements used before the run.
  int64_t entries_ = 0;  ///< Elements that the run uses at most.
};

/// All feeds of an executable.
class Feeds {
 public:
  /// `deadline`: longest time in seconds that a run waits for one element. `group` may be null.
  Feeds(const exe::Executable& executable, const Placement& placement, double deadline,
        std::shared_ptr<ProcessGroup> group);

  /// Returns the ports of a replica; null for streams without feed or of other processes. Empty
  /// without feeds. Replicas come in order.
  Ids<exe::StreamId, FeedPort*> add_replica(int replica,
                                            const Ids<exe::ArenaId, std::byte*>& host_arenas);
  /// Comes after the last replica.
  void finish_replicas();
  template <typename SourceOrSink>
  void bind(exe::FeedId feed, std::shared_ptr<SourceOrSink> end) {
    feeds_[feed]->bind(std::move(end));
  }
  /// Closes all feeds. No run may be in progress.
  void close();
  bool has_stream(exe::StreamId stream) const { return of_stream_[stream].valid(); }
  /// Error{kUsage} naming the feeds that the program uses and that are not bound.
  void begin(const exe::Program& program);
  /// Throws the error of a sink that the run uses. The call is cheap while there is none.
  void check_sinks() {
    if (shared_.sink_failed.load(std::memory_order_acquire)) [[unlikely]]
      for (const auto& feed : feeds_) feed->check_sink();
  }
  void flush(const std::atomic<bool>& stop);
  void end();
  /// Whether a strand waits for a feed.
  bool waiting() const { return shared_.waiting.load() > 0; }
  FeedEvents& events() { return shared_.events; }
  /// Returns Feed::progress of each feed, by name.
  std::vector<std::pair<std::string, int64_t>> progress() const;
  /// Returns Feed::counters of each feed.
  std::vector<FeedCounters> counters() const;

 private:
  const exe::Executable& executable_;
  const Placement& placement_;
  Ids<exe::StreamId, exe::FeedId> of_stream_;  ///< Invalid: a stream without feed.
  Feed::Shared shared_;
  Ids<exe::FeedId, std::unique_ptr<Feed>> feeds_;
};

}  // namespace sluice::runtime
