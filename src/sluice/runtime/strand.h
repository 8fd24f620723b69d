#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "sluice/runtime/channel.h"
#include "sluice/runtime/communicator.h"
#include "sluice/runtime/host_streams.h"
#include "sluice/runtime/loaded_program.h"
#include "sluice/runtime/remote_store.h"

namespace sluice::runtime {

/// A transfer with resolved addresses, between device memory and an entry of a stream or a remote
/// buffer.
struct Transfer {
  std::byte* memory = nullptr;
  int64_t bytes = 0;
  bool in = true;                   ///< Into device memory.
  std::byte* other = nullptr;       ///< Entry of the stream; null for remote buffers.
  RemoteStore* remote = nullptr;    ///< Store of the remote buffer; null for streams.
  int32_t buffer = 0;               ///< Index of the remote buffer.
  int64_t entry = 0;                ///< Entry of the remote buffer.
  const exe::Step* step = nullptr;  ///< Step of the transfer, for messages.

  void run() const;
};

/// An io queue of a device. Transfers run one at a time in the order of issue, on any thread that
/// calls advance().
class IoQueue {
 public:
  explicit IoQueue(size_t capacity) : ring_(capacity) {}
  /// Issues a transfer. Returns its number, for await(); -1 if the ring is full.
  int64_t issue(const Transfer& transfer);
  bool done(int64_t number) const { return ended_.load(std::memory_order_acquire) > number; }
  /// Runs issued transfers up to number `last`, inclusive. Returns whether it ran any. Returns
  /// false at once if another thread runs transfers of this queue.
  bool advance(int64_t last = INT64_MAX);
  /// Returns whether an issued transfer has not ended.
  bool pending() const { return ended_.load() != issued_.load(); }
  /// Blocks until the transfer has ended, or until `stop` is set and rouse() is called.
  void await(int64_t number, const std::atomic<bool>& stop) const;
  void rouse();
  void reset();
  /// Returns the step whose transfer is running, or else is next.
  const exe::Step* current() const;

 private:
  std::vector<Transfer> ring_;
  std::atomic<uint32_t> signal_{0};  ///< Changes when a transfer ends.
  std::atomic<int64_t> issued_{0};
  std::atomic<int64_t> ended_{0};
  std::atomic<bool> advancing_{false};
};

/// Counts of work, summed over strands.
struct Counters {
  int64_t kernels = 0;  ///< Number of tasks run.
  /// Operand bytes of kernels (whole kernels, counted by worker 0) and bytes of transfers.
  int64_t bytes = 0;
  double flops = 0;
  int64_t barriers = 0;
  int64_t waits = 0;  ///< Number of times that a strand could not start a step.
  Counters& operator+=(const Counters& other);
};

/// State that the strands of a replica share.
struct RunState {
  const exe::Executable* executable = nullptr;
  const LoadedProgram* loaded = nullptr;
  HostStreams* streams = nullptr;
  std::vector<std::byte*> arenas;  ///< Base address of each arena, null in the file tier.
  std::vector<std::vector<std::byte*>> arguments;  ///< By function: fixed_arguments().
  std::unique_ptr<RemoteStore> remote;
  std::vector<ChannelState>* channels = nullptr;
  std::vector<std::vector<std::unique_ptr<IoQueue>>> io;  ///< [device][queue], null for compute.
  std::vector<std::unique_ptr<std::atomic<int64_t>>> arrived;  ///< Barrier arrivals, by device.
  /// By queue number - 1: changes when a transfer is issued.
  std::vector<std::atomic<uint32_t>*> io_issued;
  bool has_io_threads = false;  ///< Io threads wait for changes of io_issued.
  Communicator* communicator = nullptr;
  const std::atomic<bool>* stop = nullptr;  ///< Set after a step of any replica has failed.
  int replica = 0;
  int workers = 1;
};

/// One worker's walk through the program of one device in one replica, as a resumable state
/// machine. No step blocks.
class Strand {
 public:
  Strand(RunState& run, int device, int worker);

  /// Prepares to run the program's entry for this device. Without such an entry the strand is
  /// finished.
  void start(const exe::Program& program);
  /// Runs steps until none can start. Returns whether it made progress. Throws the error of a step.
  bool advance();
  bool finished() const { return depth_ == 0; }
  const Counters& counters() const { return counters_; }
  Counters& counters() { return counters_; }
  int device() const { return device_; }
  /// Returns the step being run, for error messages; null between runs.
  const exe::Step* current() const;
  /// If the current step waits for a transfer, blocks until that transfer has ended or the run is
  /// stopped. Returns false if the step waits for anything else.
  bool park() const;

 private:
  struct Frame {
    const LoadedFunction* function = nullptr;
    size_t pc = 0;
    std::byte* const* fixed = nullptr;  ///< fixed_arguments() of the function, or null.
    size_t bases = 0;                   ///< Index of its frame in bases_; parameters follow.
    size_t index_params = 0;            ///< Index of its first parameter in index_params_.
    const exe::Loop* loop = nullptr;    ///< Loop that this activation is running, or null.
    int64_t iteration = 0;
  };

  std::byte* const* arguments_of(const LoadedKernel& kernel);
  void run_kernel(const LoadedKernel& kernel);
  void enter(const exe::Call& call, int64_t iteration);
  /// Each of these steps returns false if it cannot run yet.
  bool issue(const exe::Issue& issue);
  bool wait(const exe::Wait& wait);
  /// Returns whether the next step waits for this transfer. Then this worker runs the transfer in
  /// that wait.
  bool is_awaited_next(const exe::Issue& issue) const;
  void call_io_thread(int32_t queue) const;
  bool send(const exe::Send& send);
  bool receive(const exe::Receive& receive);
  /// Returns false. Throws the error of a failed process.
  bool wait_for_peers() const;
  bool collective(const exe::Collective& collective, const BoundCollective& bound);
  bool stopped() const { return run_.stop->load(std::memory_order_relaxed); }
  void branch(const exe::Branch& branch);
  bool barrier();
  std::byte* address(const exe::Address& at, int64_t iteration) const;
  std::byte* slot_of_ring(std::byte* base, const exe::Address& at, int64_t iteration) const;
  int64_t evaluate(const exe::IndexExpr& expr, int64_t iteration) const;

  RunState& run_;
  int device_;
  int worker_;
  std::byte* workspace_ = nullptr;
  std::vector<Frame> stack_;
  size_t depth_ = 0;
  std::vector<std::byte*> bases_;
  std::vector<int64_t> index_params_;
  std::vector<std::byte*> operands_;
  std::vector<int64_t> scalars_;
  /// (token key, transfer number) of transfers that no step has waited for.
  std::vector<std::pair<int64_t, int64_t>> tokens_;
  /// Step whose transfer failed while this worker ran it in a wait.
  const exe::Step* blamed_ = nullptr;
  /// Queue of the transfer that the current step waits for, or null.
  const IoQueue* awaited_ = nullptr;
  int64_t awaited_number_ = 0;
  enum class Stage : uint8_t { kOutside, kCame, kDone };
  Stage stage_ = Stage::kOutside;  ///< Stage of the current collective.
  bool at_barrier_ = false;
  bool synced_ = false;
  int64_t barriers_ = 0;
  Counters counters_;
};

}  // namespace sluice::runtime
