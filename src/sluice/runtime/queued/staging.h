#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/runtime/queued/commands.h"
#include "sluice/runtime/strand.h"

namespace sluice::runtime {

/// A transfer between device memory and an entry of a stream or a remote buffer.
struct QueuedTransfer {
  const exe::Issue* issue = nullptr;
  DeviceAddress memory;
  int64_t entry = 0;
  const exe::Step* step = nullptr;

  bool is_load() const {
    return issue->kind == exe::TransferKind::kStreamIn ||
           issue->kind == exe::TransferKind::kRemoteLoad;
  }
};

/// The staging memory of a queue, and the transfer that passes through it.
class Staging {
 public:
  /// `memory` has the layout of exe::StagingPlan and is pinned.
  Staging(RunState& run, Commands& commands, std::span<std::byte> memory);

  /// Forgets the transfers of a run that was stopped. The queue must have run all commands.
  void restart();
  /// Continues a transfer; returns whether it has ended. Then the upload of a load is enqueued, and
  /// a store has reached its entry. Until then the caller calls again with the same transfer. The
  /// transfer does not end if the run is stopped.
  bool advance(const QueuedTransfer& transfer);
  /// Whether advance() waits for commands of the device.
  bool waits() const { return waits_; }
  /// The word for values that the host reads.
  std::byte* word() const { return word_; }

 private:
  struct Slot {
    std::byte* memory = nullptr;
    int64_t mark = 0;  ///< After the last copy that uses it; 0: no copy uses it.
  };

  bool load_piece(const QueuedTransfer& t, int64_t bytes);
  bool store_piece(const QueuedTransfer& t, int64_t bytes);
  bool is_free(Slot& slot);
  std::byte* array(const QueuedTransfer& t) const;

  RunState& run_;
  Commands& commands_;
  std::byte* word_ = nullptr;
  std::array<Slot, 2> slots_;
  int64_t slot_bytes_ = 0;
  size_t next_ = 0;       ///< Slot of the next piece.
  int64_t done_ = 0;      ///< Bytes of the transfer that have passed a slot.
  bool storing_ = false;  ///< The next piece is on its way to its slot.
  bool waits_ = false;
};

}  // namespace sluice::runtime
