#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "sluice/base/numbers/ring.h"
#include "sluice/exe/executable.h"
#include "sluice/runtime/events.h"
#include "sluice/runtime/remote_store.h"

namespace sluice::runtime {

/// A transfer with resolved addresses, between device memory that the host can address and an entry
/// of a stream or a remote buffer.
struct Transfer {
  std::byte* memory = nullptr;
  int64_t bytes = 0;
  bool in = true;                   ///< Into device memory.
  std::byte* other = nullptr;       ///< Entry of the stream; null for remote buffers.
  RemoteStore* remote = nullptr;    ///< Store of the remote buffer; null for streams.
  exe::BufferId buffer;             ///< The remote buffer.
  int64_t entry = 0;                ///< Entry of the remote buffer.
  const exe::Step* step = nullptr;  ///< Step of the transfer, for messages.

  void run() const;
};

/// An I/O queue of a device. Transfers run one at a time in the order of issue, on any thread that
/// calls advance().
class IoQueue {
 public:
  /// `stop` is set to stop a run.
  IoQueue(int64_t capacity, const std::atomic<bool>& stop) : ring_(capacity), stop_(stop) {}
  /// Issues a transfer. Returns its number, for await(); -1 if the ring is full.
  int64_t issue(const Transfer& transfer);
  bool done(int64_t number) const { return ended_.load(std::memory_order_acquire) > number; }
  /// Runs issued transfers up to number `last`, inclusive; only one if the run is stopped. Returns
  /// whether it ran any. Returns false at once if another thread runs transfers of this queue.
  bool advance(int64_t last = INT64_MAX);
  /// Returns whether an issued transfer has not ended.
  bool pending() const { return ended_.load() != issued_.load(); }
  /// Blocks until the transfer has ended, or until the run is stopped and rouse() is called.
  void await(int64_t number) const;
  void rouse();
  void reset();
  /// Adds the transfers of later runs to a ring; null: records none.
  void record(EventRing* events) { events_ = events; }
  /// Returns the step whose transfer is running, or else is next.
  const exe::Step* current() const;

 private:
  Ring<Transfer> ring_;
  const std::atomic<bool>& stop_;
  std::atomic<uint32_t> signal_{0};  ///< Changes when a transfer ends.
  std::atomic<int64_t> issued_{0};
  std::atomic<int64_t> ended_{0};
  std::atomic<bool> advancing_{false};
  EventRing* events_ = nullptr;
};

}  // namespace sluice::runtime
