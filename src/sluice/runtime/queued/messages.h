#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "sluice/runtime/queued/commands.h"
#include "sluice/runtime/strand.h"

namespace sluice::runtime {

/// The messages of a device with queues, on its compute queue.
///
/// Two devices with queues of one kind copy messages from the memory of the sender. Each end
/// publishes a copy together with its mark, and the other queue waits for that mark. So no host
/// waits for a device. All other messages pass through pinned memory. The host publishes such a
/// copy when its mark has passed.
class QueuedMessages {
 public:
  /// Records the device as an end of its channels, and pins slots in host memory. `device` is the
  /// index of `open` in the executable. Error{kUsage} if slots are not where exe::slot_memory()
  /// requires.
  QueuedMessages(const RunState& run, exe::DeviceId device, QueuedDevice& open, Commands& commands);

  /// Forgets the messages of a run that was stopped.
  void restart() { first_ = end_ = 0; }
  /// Publishes the copies through pinned memory that have ended. Returns whether all have.
  bool publish();
  /// Enqueue the copy of a message. Return false if its slot is not free, or if the message was not
  /// sent.
  bool send(const exe::Send& send, DeviceAddress operand, int64_t message, const exe::Step* step);
  bool receive(const exe::Receive& receive, DeviceAddress operand, int64_t message,
               const exe::Step* step);

 private:
  /// A copy through pinned memory that may not have ended. Then the channel gets the count.
  struct Pending {
    int64_t mark = 0;
    std::atomic<int64_t>* counter = nullptr;
    int64_t count = 0;
  };

  size_t add_channel(exe::ChannelId index, exe::DeviceId device, QueuedDevice& open);
  ChannelState& state(exe::ChannelId channel) { return (*run_.channels)[channel]; }
  std::byte* pinned_slot(exe::ChannelId channel, int64_t message) const;
  DeviceAddress device_slot(exe::ChannelId channel, int64_t message) const;
  void publish_later(std::atomic<int64_t>& counter, int64_t count) {
    pending_[end_++ % pending_.size()] = {commands_.mark(), &counter, count};
  }

  const RunState& run_;
  Commands& commands_;
  std::vector<Pending> pending_;  ///< A ring of those that are not published.
  size_t first_ = 0, end_ = 0;
};

}  // namespace sluice::runtime
