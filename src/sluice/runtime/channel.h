#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sluice/runtime/remote_channel.h"

namespace sluice::runtime {

class Commands;
class QueuedDevice;

/// One end of a channel between two devices with queues of one kind. The strand of the device sets
/// it when the strand is created. `commands` is null in all other channels.
struct QueuedEnd {
  QueuedDevice* device = nullptr;
  Commands* commands = nullptr;  ///< Its compute queue.
  /// For each slot: the mark after the copy of its last message. The count that this end publishes
  /// next publishes the mark too. The other end reads it before it publishes its own count.
  std::vector<int64_t> marks;
};

/// A channel between two devices. Its counts are for devices of one process. Message m is in its
/// slot when `sent` > m. Its slot is free for message m + capacity when `received` > m. Between two
/// devices with queues of one kind, the copy to or from the slot has then been enqueued. The queue
/// of the other end must wait for its mark.
struct ChannelState {
  std::atomic<int64_t> sent{0};
  std::atomic<int64_t> received{0};
  int64_t capacity = 1;
  QueuedEnd sender, receiver;
  /// The end in this process if the other end is in another one; then the counts are unused.
  std::unique_ptr<RemoteChannel> remote;

  bool can_send(int64_t message) const;
  bool can_receive(int64_t message) const;
  size_t slot(int64_t message) const { return static_cast<size_t>(message % capacity); }
};

}  // namespace sluice::runtime
