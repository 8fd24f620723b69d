#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "sluice/base/numbers/ring.h"
#include "sluice/runtime/queued/staging.h"

namespace sluice::runtime {

/// An I/O queue of a device with queues. Its transfers run one at a time, in the order of issue, on
/// a queue and a thread of their own, concurrently with the compute queue.
class QueuedIo {
 public:
  /// `compute` is the compute queue of the device, which only the thread that walks uses.
  QueuedIo(RunState& run, Commands& compute, std::unique_ptr<Queue> queue,
           std::span<std::byte> staging);
  ~QueuedIo();
  QueuedIo(const QueuedIo&) = delete;
  QueuedIo& operator=(const QueuedIo&) = delete;

  /// Prepares a run. No thread may be in advance().
  void start();
  /// Issues a transfer after `mark` of the compute queue. Returns its number, or kNotYet without
  /// room. The thread that walks calls this and await().
  int64_t issue(const QueuedTransfer& transfer, int64_t mark);
  /// Lets later commands of the compute queue follow the transfer. Returns false if the transfer
  /// has not come so far: a load must be enqueued, a store must have reached its entry. Throws the
  /// error of a transfer.
  bool await(int64_t number);
  /// Returns whether a transfer has been issued and has not come so far.
  bool pending() const { return ended_.load() != issued_.load(); }
  /// Stops after the current piece, and waits until no thread uses the memory of streams.
  void stop();
  /// Returns, after stop(), whether the queue has run all commands. Throws the error of a command.
  bool drained() { return commands_.drained(); }
  /// Returns the step to blame for an error of await().
  const exe::Step* blamed() const { return blamed_; }
  /// Continues transfers until one must wait. Returns whether it made progress. Runs on the queue's
  /// thread, or on the walk's in runs without io threads.
  bool advance();

 private:
  struct Job {
    QueuedTransfer transfer;
    int64_t after = 0;  ///< Mark of the compute queue.
  };

  void serve();
  bool advance_or_fail();
  Job& job(int64_t number) { return ring_[number]; }

  RunState& run_;
  Commands& compute_;
  Commands commands_;
  Staging staging_;
  Ring<Job> ring_;
  bool follows_ = false;  ///< The current transfer waits for the compute queue on the device.
  std::atomic<int64_t> issued_{0};
  std::atomic<int64_t> ended_{0};
  std::atomic<int64_t> loaded_{0};  ///< Mark after the last load that is enqueued; 0: none.
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  ///< Set before failed_.
  const exe::Step* blamed_ = nullptr;
  std::atomic<bool> stops_{false}, quits_{false};
  std::atomic<uint32_t> signal_{0};  ///< Changes when the thread may have work.
  std::atomic<bool> busy_{false};    ///< The thread is in advance().
  std::thread thread_;
};

}  // namespace sluice::runtime
