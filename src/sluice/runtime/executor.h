#pragma once
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sluice/base/system/cgroup.h"
#include "sluice/runtime/pool.h"
#include "sluice/runtime/strand.h"

namespace sluice::runtime {

struct ExecutorOptions {
  int threads = 1;       ///< Workers for the devices of the host.
  int usable_cores = 1;  ///< Workers spin only if this is at least their number.
  std::string folder;    ///< Folder for the files of the file tier.
  /// Host memory that this process may allocate, with that of CPUs.
  sys::AvailableMemory host_memory = {};
  /// Largest rate of remote memory in bytes per second; -1: no limit.
  int64_t remote_bandwidth = -1;
  /// Processes that share the devices of all replicas; null: this process runs them all.
  std::shared_ptr<ProcessGroup> group = nullptr;
  std::vector<int> map = {};  ///< Argument of exe::ProcessMap.
  /// Agreement of these processes; null without them.
  Agreement* agreement = nullptr;
  /// Longest time in seconds that a run waits, after a stop or an error, until devices with queues
  /// have run their commands.
  double stop_deadline = 10;
  /// Longest time in seconds that a run waits for one element of a feed.
  double feed_deadline = std::numeric_limits<double>::infinity();
  /// Events of a run that each worker and each I/O queue keeps; 0: none.
  int64_t events = 0;
};

struct FreeMemory {
  void operator()(std::byte* p) const { std::free(p); }
};

/// Runs the part of one executable that this process has: some devices of some replicas. Allocates
/// its arenas once. A run allocates nothing, except that devices with queues
/// make recordings of launches.
class Executor {
 public:
  /// Allocates memory and binds kernels. DoesNotFit, before it allocates, if it needs more than
  /// ExecutorOptions::host_memory or QueuedDevice::available_memory(). Error{kUsage} if the
  /// executable was planned for other devices or workers, or if the processes cannot share them as
  /// `options` say.
  Executor(exe::Executable executable, std::vector<std::shared_ptr<Device>> devices,
           ExecutorOptions options);
  ~Executor();

  const exe::Executable& executable() const { return executable_; }
  /// Returns what this process runs. Only this has memory here.
  const Placement& placement() const { return placement_; }
  /// Runs a program on bound streams, and gathers the outputs of all replicas into every process.
  /// Rethrows the error of a step, with the op and its source line; Error{kStopped} after stop().
  /// After both, all strands stop at their next barrier, iteration or wait. Then the run waits for
  /// the commands of devices with queues. Error{kPeerLost} if they have not ended by the deadline.
  /// From then on every run throws this error.
  void run(const exe::Program& program, HostStreams& streams);
  /// Bind a feed, while no run is in progress; see Feed::bind.
  void bind_feed(exe::FeedId feed, std::shared_ptr<FeedSource> source) {
    feeds_.bind(feed, std::move(source));
  }
  void bind_feed(exe::FeedId feed, std::shared_ptr<FeedSink> sink) {
    feeds_.bind(feed, std::move(sink));
  }
  const Feeds& feeds() const { return feeds_; }
  /// Ends all calls of sources and sinks. No run may follow that uses a feed.
  void close_feeds() { feeds_.close(); }
  /// Runs a program on this thread alone. Each iteration advances a strand or I/O queue that `seed`
  /// selects. Error{kInternal} if all strands are stuck.
  void run_interleaved(const exe::Program& program, HostStreams& streams, uint64_t seed);
  /// Ends the run in progress with Error{kStopped}, unless a step fails. Returns false, without
  /// any effect, if no run is in progress. Any thread may call it, but no signal handler.
  bool stop();

  /// Returns a device of a replica. Throws the error of a missed deadline for a device with queues,
  /// whose commands may still use its memory.
  OpenDevice& device(exe::DeviceId index, int replica = 0) const {
    if (lost_ && executable_.devices[index].queued) throw Error(*lost_);
    return *this->replica(replica).devices[index];
  }
  /// Returns the first address of an arena of a replica that is in device memory.
  DeviceAddress arena(exe::ArenaId index, int replica = 0) const {
    return this->replica(replica).state.arenas[index];
  }
  /// Returns the store of the remote buffers of a replica.
  RemoteStore& remote(int replica = 0) const { return *this->replica(replica).state.remote; }
  /// Returns the bytes that this process has allocated for arenas of a device, or of the machine
  /// (invalid), in a space.
  int64_t measured_bytes(int replica, exe::DeviceId device, exe::Space space) const;
  /// Returns the bytes of memory that receive operands from other processes.
  int64_t exchange_bytes() const { return communicator_->room(); }
  /// Returns the sum of counters over all runs.
  Counters counters() const;
  /// Returns how often each transfer, message and collective of this process ran in the last run,
  /// by replica. Steps that did not run are left out.
  std::vector<StepRuns> moves() const;
  /// Returns the events of the last run; empty unless ExecutorOptions::events is set. Devices with
  /// queues record when the host enqueues a step, and nothing of their I/O queues.
  const std::deque<Lane>& lanes() const { return lanes_; }

 private:
  /// Devices, memory and strands of one replica.
  struct Replica {
    std::vector<std::unique_ptr<std::byte, FreeMemory>> host_memory;
    /// Null for devices of other processes.
    Ids<exe::DeviceId, std::unique_ptr<OpenDevice>> devices;
    Ids<exe::ArenaId, int64_t> allocated;  ///< Bytes of each arena.
    Ids<exe::ChannelId, ChannelState> channels;
    RunState state;
    std::vector<std::vector<std::unique_ptr<Strand>>> strands;  ///< Indexed by worker of its team.
    std::vector<std::unique_ptr<Strand>> queued;                ///< Strands of devices with queues.
  };

  const Replica& replica(int number) const {
    return *at(replicas_, number - placement_.here().first);
  }
  std::vector<OpenDevices> open_devices();
  void check_host_memory() const;
  void check_device_memory() const;
  exe::DeviceId owner_of(int replica, exe::ArenaId arena) const;
  void allocate_arenas(Replica& replica, int number);
  void prepare(Replica& replica, int number, int workers);
  /// Adds a lane for events if they are recorded; null otherwise.
  EventRing* add_lane(int replica, exe::DeviceId device, size_t queue, int worker);
  void prepare(const exe::Program& program, HostStreams& streams, bool has_io_threads);
  template <typename F>
  void run_with(const exe::Program& program, HostStreams& streams, bool has_io_threads, F&& drive);
  void begin_run();
  void settle();
  void drain(Strand& strand, int replica, std::chrono::steady_clock::time_point end);
  void lose(const Strand& strand, int replica);
  void share_outputs(const exe::Program& program, HostStreams& streams);
  void end_run();
  bool may_spin() const { return options_.usable_cores >= static_cast<int>(work_.size()); }
  /// The strands of one worker, of all replicas. One thread at a time advances them. That is the
  /// worker's thread, its owner, or another thread while the owner has no core.
  struct Work {
    std::vector<Strand*> strands;
    bool is_movable = true;  ///< Other threads may advance the strands.
    /// A thread advances the strands. Between runs the thread that runs programs holds all works.
    alignas(64) std::atomic<bool> is_held{true};
    std::atomic<bool> finished{false};
    /// The worker whose thread advances the strands; kNobody if they have not started.
    alignas(64) std::atomic<int> driver{kNobody};
    alignas(64) std::atomic<uint32_t> beats{0};  ///< Passes of the owner's thread.
    /// Beats of all works when the owner's thread looked at them. Only this thread uses them.
    std::vector<uint32_t> seen_beats;
  };
  static constexpr int kNobody = -1;
  // drive.cc: threads that advance strands.
  void open_works();
  void close_works();
  bool all_finished() const;
  static bool hold(Work& work) {
    return !work.is_held.load(std::memory_order_relaxed) &&
           !work.is_held.exchange(true, std::memory_order_acquire);
  }
  static void release(Work& work) { work.is_held.store(false, std::memory_order_release); }
  bool advance(Work& work);
  bool advance_moved(int worker);
  void adopt(int worker, int idle, std::vector<uint32_t>& beats);
  void drive(int worker);
  void drive_interleaved(const exe::Program& program, const std::vector<Strand*>& strands,
                         uint64_t seed);
  /// A thread and the I/O queues that it serves: the queues of one number, on all devices, in all
  /// replicas.
  struct IoThread {
    std::vector<IoQueue*> queues;
    std::atomic<uint32_t> issued{0};  ///< Changes when the thread may have a transfer to run.
    /// Value of `issued` at which the thread last found no transfer to run. Differs from `issued`
    /// before the first pass.
    std::atomic<uint32_t> idle{1};
    std::thread thread;

    /// Blocks until the thread has run all issued transfers and left its queues.
    void await_idle() const;
  };
  void serve_io(IoThread& io);
  void park(int worker, int idle, uint32_t feed_events);
  bool park(Work& work);
  void fail_run(std::exception_ptr error);
  void stop_strands();
  /// Adds the op and its source line to the error being handled, and returns that error.
  static std::exception_ptr described(Error& e, const exe::Step* step);
  bool advance_or_fail(Strand& strand);
  bool advance_or_fail(IoQueue& queue);
  void check_sinks_or_fail();
  bool poll_or_fail();

  exe::Executable executable_;
  Ids<exe::DeviceId, std::shared_ptr<Device>> devices_;
  ExecutorOptions options_;
  Placement placement_;
  /// For each stream: the process of each replica's array, for outputs in a group of processes.
  Ids<exe::StreamId, std::vector<int>> stream_owners_;
  LoadedProgram loaded_;
  std::unique_ptr<Communicator> communicator_;
  Throttle throttle_;
  std::deque<Lane> lanes_;  ///< Strands and I/O queues add to them, so they end later.
  std::vector<std::unique_ptr<Replica>> replicas_;
  Feeds feeds_;  ///< Its threads use memory of the replicas.
  /// Indexed by worker of the pool. Each strand of a device with queues has a worker of its own
  /// after the others, which its files and full queues may hold up.
  std::deque<Work> work_;
  std::atomic<bool> over_{true};   ///< No run is in progress.
  std::atomic<int64_t> moved_{0};  ///< See Counters::moved.
  std::vector<IoQueue*> queues_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<Pool> pool_;
  std::mutex state_lock_;      ///< Guards the next three.
  bool running_ = false;       ///< A run is in progress.
  bool requested_ = false;     ///< stop() was called in this run.
  std::exception_ptr error_;   ///< First error of this run.
  std::optional<Error> lost_;  ///< Error of a missed deadline; only the thread that runs uses it.
  std::vector<std::unique_ptr<IoThread>> io_threads_;  ///< Indexed by queue number - 1.
  std::atomic<bool> io_quit_{false};
};

}  // namespace sluice::runtime
