#pragma once
#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sluice/runtime/pool.h"
#include "sluice/runtime/strand.h"

namespace sluice::runtime {

struct ExecutorOptions {
  int threads = 1;       ///< Workers of the pool.
  int usable_cores = 1;  ///< Workers spin only if there are at least as many cores.
  std::string folder;    ///< Where files of the file tier are made.
  int64_t remote_bandwidth =
      -1;  ///< Bytes a second that remote memory moves at most; -1: as it can.
  /// The processes that share the replicas; null: this one runs all.
  std::shared_ptr<ProcessGroup> group = nullptr;
};

struct FreeMemory {
  void operator()(std::byte* p) const { std::free(p); }
};

/// Runs the programs of one executable on devices of this process: its replicas, or its part of them. Allocates its arenas once; a run
/// allocates nothing.
class Executor {
 public:
  /// Error{kUsage} if the executable was planned for other devices or workers, or the processes cannot share its replicas.
  Executor(exe::Executable executable, std::vector<std::shared_ptr<Device>> devices,
           ExecutorOptions options);
  ~Executor();

  const exe::Executable& executable() const { return executable_; }
  /// The replicas that this process runs. Only they have memory here.
  const ReplicaRange& replicas() const { return communicator_->here(); }
  /// Runs a program on bound streams. What a step threw is rethrown here, with the op and its source line; the
  /// others, of all replicas, stop at their next barrier or wait.
  void run(const exe::Program& program, HostStreams& streams);
  /// The same on this thread alone: at each turn a strand or io queue chosen by `seed` is advanced. Error{kInternal}
  /// if all are stuck.
  void run_interleaved(const exe::Program& program, HostStreams& streams, uint64_t seed);

  Device& device(int32_t index) const { return *devices_[static_cast<size_t>(index)]; }
  /// Null for an arena of the file tier.
  std::byte* arena(int32_t index, int replica = 0) const {
    return replica_state(replica).arenas[static_cast<size_t>(index)];
  }
  /// What holds the remote buffers of a replica.
  RemoteStore& remote(int replica = 0) const { return *replica_state(replica).remote; }
  /// Bytes allocated for arenas of a device in a space, by the replica that has most; of a tier, by all of this process.
  int64_t measured_bytes(int32_t device, exe::Space space) const;
  /// Bytes that hold what comes from other processes.
  int64_t exchange_bytes() const { return communicator_->room(); }
  /// Sum over all runs.
  Counters counters() const;

 private:
  struct Region {
    std::unique_ptr<DeviceMemory> device;
    std::unique_ptr<std::byte, FreeMemory> host;
    int64_t bytes = 0;
  };
  /// Memory and strands of one replica.
  struct Replica {
    std::vector<Region> regions;
    std::vector<ChannelState> channels;
    RunState state;
    std::vector<std::vector<Strand>> strands;  ///< [worker of its team][device]
  };

  const RunState& replica_state(int replica) const {
    return replicas_[static_cast<size_t>(replica - replicas().first)]->state;
  }
  void add_replica(int number, int workers);
  void prepare(const exe::Program& program, HostStreams& streams);
  void drive(int worker);
  /// A thread and the queues that it serves: those of one number, of all devices and replicas.
  struct IoThread {
    std::vector<IoQueue*> queues;
    std::atomic<uint32_t> issued{0};  ///< Changes when it may have something to do.
    /// The `issued` at which it last found nothing to do. Differs from `issued` before the first pass.
    std::atomic<uint32_t> idle{1};
    std::thread thread;

    /// Returns when the thread has left its queues.
    void await_idle() const;
  };
  void serve_io(IoThread& io);
  bool park(const std::vector<Strand*>& own);
  void fail_run(std::exception_ptr error);
  /// The error being handled, with the op and its source line.
  static std::exception_ptr described(Error& e, const exe::Step* step);
  bool advance_or_fail(Strand& strand);
  bool advance_or_fail(IoQueue& queue);
  bool poll_or_fail();
  void rethrow();

  exe::Executable executable_;
  std::vector<std::shared_ptr<Device>> devices_;
  ExecutorOptions options_;
  LoadedProgram loaded_;
  std::unique_ptr<Communicator> communicator_;
  Throttle throttle_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<std::vector<Strand*>> work_;  ///< By worker of the pool: its strands of all replicas.
  std::vector<IoQueue*> queues_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<Pool> pool_;
  std::mutex error_lock_;
  std::exception_ptr error_;
  std::vector<std::unique_ptr<IoThread>> io_threads_;  ///< By queue, from 1 on.
  std::atomic<bool> io_quit_{false};
};

}  // namespace sluice::runtime
