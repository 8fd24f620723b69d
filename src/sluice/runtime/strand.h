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

/// A transfer, addresses resolved: between memory of a device and a stream's entry, or a remote buffer's.
struct Transfer {
  std::byte* memory = nullptr;
  int64_t bytes = 0;
  bool in = true;                   ///< To the memory of the device.
  std::byte* other = nullptr;       ///< The stream's entry.
  RemoteStore* remote = nullptr;    ///< Instead, what has the remote buffer,
  int32_t buffer = 0;               ///< which one it is,
  int64_t entry = 0;                ///< and the entry.
  const exe::Step* step = nullptr;  ///< For messages.

  void run() const;
};

/// The io queue of a device: transfers run in the order issued, by whoever advances it, one at a time.
class IoQueue {
 public:
  explicit IoQueue(size_t capacity) : ring_(capacity) {}
  /// Number of the transfer, to wait for; -1 if the ring is full.
  int64_t issue(const Transfer& transfer);
  bool done(int64_t number) const { return ended_.load(std::memory_order_acquire) > number; }
  /// Runs what has been issued, up to and with transfer `last`; whether anything was. False at once if another runs some.
  bool advance(int64_t last = INT64_MAX);
  /// Whether transfers wait to be run.
  bool pending() const { return ended_.load() != issued_.load(); }
  /// Parks the caller until the transfer has ended or `stop` is set and rouse() called.
  void await(int64_t number, const std::atomic<bool>& stop) const;
  void rouse();
  void reset();
  /// The step whose transfer is next or being run.
  const exe::Step* current() const;

 private:
  std::vector<Transfer> ring_;
  std::atomic<uint32_t> signal_{0};  ///< Changes when a transfer ends.
  std::atomic<int64_t> issued_{0};
  std::atomic<int64_t> ended_{0};
  std::atomic<bool> advancing_{false};
};

/// Counts of what was done, summed over strands.
struct Counters {
  int64_t kernels = 0;  ///< Tasks run.
  int64_t bytes =
      0;  ///< Bytes of the operands of kernels (whole kernels, counted by worker 0) and transfers.
  double flops = 0;
  int64_t barriers = 0;
  int64_t waits = 0;  ///< Times that a strand found nothing to start.
  Counters& operator+=(const Counters& other);
};

/// What the strands of a replica share.
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
  std::vector<std::atomic<uint32_t>*>
      io_issued;                ///< By queue, from 1 on: changes when a transfer is issued.
  bool has_io_threads = false;  ///< Somebody is parked on them.
  Communicator* communicator = nullptr;
  const std::atomic<bool>* stop = nullptr;  ///< A step of some replica failed.
  int replica = 0;
  int workers = 1;
};

/// One worker's walk through one device's program in one replica: a resumable state machine. No step blocks.
class Strand {
 public:
  Strand(RunState& run, int device, int worker);

  /// Ready to run the program's entry for this device (or nothing, if it has none).
  void start(const exe::Program& program);
  /// Runs until nothing can start; whether anything was done. Throws what a step threw.
  bool advance();
  bool finished() const { return depth_ == 0; }
  const Counters& counters() const { return counters_; }
  Counters& counters() { return counters_; }
  int device() const { return device_; }
  /// The step being run, for error messages; null between runs.
  const exe::Step* current() const;
  /// Where advance() could start nothing but a wait for a transfer: parks the caller until that has ended or the run is
  /// stopped. False where something else is missing.
  bool park() const;

 private:
  struct Frame {
    const LoadedFunction* function = nullptr;
    size_t pc = 0;
    std::byte* const* fixed = nullptr;  ///< fixed_arguments(), if there are any.
    size_t bases = 0;                   ///< This activation's in bases_: frame, then parameters.
    size_t index_params = 0;            ///< Likewise in index_params_.
    const exe::Loop* loop = nullptr;    ///< The loop this frame runs, if it is running one.
    int64_t iteration = 0;
  };

  std::byte* const* arguments_of(const LoadedKernel& kernel);
  void run_kernel(const LoadedKernel& kernel);
  void enter(const exe::Call& call, int64_t iteration);
  /// These return false if they cannot happen yet.
  bool issue(const exe::Issue& issue);
  bool wait(const exe::Wait& wait);
  /// The step after this one waits for its end: this worker will run it then.
  bool is_awaited_next(const exe::Issue& issue) const;
  void call_io_thread(int32_t queue) const;
  bool send(const exe::Send& send);
  bool receive(const exe::Receive& receive);
  /// False. Throws what another process failed with.
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
  std::vector<std::pair<int64_t, int64_t>>
      tokens_;  ///< (token key, transfer number) of outstanding waits.
  const exe::Step* blamed_ =
      nullptr;  ///< The step whose transfer failed when this worker ran it while it waited.
  const IoQueue* awaited_ = nullptr;  ///< The transfer that the current step waits for.
  int64_t awaited_number_ = 0;
  enum class Stage : uint8_t { kOutside, kCame, kDone };
  Stage stage_ = Stage::kOutside;  ///< Of the collective that the strand is at.
  bool at_barrier_ = false;
  bool synced_ = false;
  int64_t barriers_ = 0;
  Counters counters_;
};

}  // namespace sluice::runtime
