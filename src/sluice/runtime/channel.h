#pragma once
#include <atomic>
#include <cstdint>

namespace sluice::runtime {

/// Counts of a channel between two devices of one process. Message m is in its slot when `sent` >
/// m. Its slot is free for message m + capacity when `received` > m.
struct ChannelState {
  std::atomic<int64_t> sent{0};
  std::atomic<int64_t> received{0};
  int64_t capacity = 1;

  bool can_send(int64_t message) const;
  bool can_receive(int64_t message) const;
};

}  // namespace sluice::runtime
