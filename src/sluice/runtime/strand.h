#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "sluice/runtime/channel.h"
#include "sluice/runtime/communicator.h"
#include "sluice/runtime/events.h"
#include "sluice/runtime/io_queue.h"
#include "sluice/runtime/loaded_program.h"
#include "sluice/runtime/remote_store.h"
#include "sluice/runtime/streams/feeds.h"
#include "sluice/runtime/streams/host_streams.h"

namespace sluice::runtime {

/// Counts of work, summed over strands.
struct Counters {
  int64_t kernels = 0;  ///< Number of tasks run.
  /// Operand bytes of kernels (whole kernels, counted by worker 0) and bytes of transfers.
  int64_t bytes = 0;
  double flops = 0;
  int64_t barriers = 0;
  int64_t waits = 0;  ///< Number of times that a strand could not start a step.
  /// Number of times that a thread went on with the strands of a worker that had no core.
  int64_t moved = 0;
  Counters& operator+=(const Counters& other) {
    kernels += other.kernels;
    bytes += other.bytes;
    flops += other.flops;
    barriers += other.barriers;
    waits += other.waits;
    moved += other.moved;
    return *this;
  }
};

/// State that the strands of a replica share.
struct RunState {
  const exe::Executable* executable = nullptr;
  const LoadedProgram* loaded = nullptr;
  HostStreams* streams = nullptr;
  Ids<exe::StreamId, FeedPort*> feed_ports;  ///< Null without feed. Empty without feeds.
  Ids<exe::ArenaId, DeviceAddress> arenas;   ///< Begin of each arena in device memory; others null.
  Ids<exe::ArenaId, std::byte*> host_arenas;  ///< Begin of each arena in host memory; others null.
  std::unique_ptr<RemoteStore> remote;
  Ids<exe::ChannelId, ChannelState>* channels = nullptr;
  Ids<exe::DeviceId, std::vector<std::unique_ptr<IoQueue>>> io;  ///< Null for the compute queue.
  Ids<exe::DeviceId, std::unique_ptr<std::atomic<int64_t>>> arrived;  ///< Barrier arrivals.
  /// For each I/O queue (number - 1): changes when a transfer is issued.
  std::vector<std::atomic<uint32_t>*> io_issued;
  bool has_io_threads = false;  ///< Io threads wait for changes of io_issued.
  Communicator* communicator = nullptr;
  /// Set when all strands must stop: a step of any replica has failed, or a request has come.
  const std::atomic<bool>* stop = nullptr;
  int replica = 0;

  /// Returns the port of a stream; null if it belongs to no feed.
  FeedPort* port(exe::StreamId stream) const {
    return feed_ports.empty() ? nullptr : feed_ports[stream];
  }
  /// Returns the begin of a worker's workspace on a device; null without one.
  DeviceAddress workspace(exe::DeviceId device, int worker = 0) const {
    for (const exe::ArenaId a : arenas.ids()) {
      const exe::Arena& arena = executable->arenas[a];
      if (arena.device == device && arena.kind == exe::ArenaKind::kWorkspace)
        return arenas[a] + worker * arena.stride;
    }
    return {};
  }
};

/// One worker's execution of the program of one device in one replica, as a resumable state
/// machine. No step blocks. Devices create their strands, which are Walks (walk.h).
class Strand {
 public:
  virtual ~Strand() = default;
  /// Prepares to run the program's entry for this device. Without such an entry the strand is
  /// finished.
  virtual void start(const exe::Program& program) = 0;
  /// Runs steps until none can start. Returns whether it made progress. Throws the error of a step.
  virtual bool advance() = 0;
  virtual bool finished() const = 0;
  /// Returns the step being run, for error messages; null between runs.
  virtual const exe::Step* current() const = 0;
  /// If the current step waits for a transfer, blocks until that transfer has ended or the run is
  /// stopped. Returns false if the step waits for anything else.
  virtual bool park() const = 0;
  /// Waits, after a run that may have been stopped, until nothing uses the memory of streams.
  virtual void settle() = 0;
  /// Returns, after settle(), whether the device has run all commands of the run. Does not wait.
  /// Throws the error of a command.
  virtual bool drained() = 0;
  virtual exe::DeviceId device() const = 0;
  /// Returns whether the step waits for commands that the device runs without the host.
  virtual bool waits_for_device() const = 0;
  virtual const Counters& counters() const = 0;
  /// Returns how often each step of LoadedProgram::moves has run in the last run. A transfer counts
  /// when it is issued. All zero unless this worker leads its device.
  virtual const std::vector<int64_t>& moves() const = 0;
  /// Adds the events of later runs to a ring; null: records none.
  virtual void record(EventRing* events) = 0;
};

}  // namespace sluice::runtime
