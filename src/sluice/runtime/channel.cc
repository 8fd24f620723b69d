#include "sluice/runtime/channel.h"

namespace sluice::runtime {

bool ChannelState::can_send(int64_t message) const {
  return sent.load(std::memory_order_relaxed) == message &&
         message - received.load(std::memory_order_acquire) < capacity;
}

bool ChannelState::can_receive(int64_t message) const {
  return sent.load(std::memory_order_acquire) > message &&
         received.load(std::memory_order_relaxed) == message;
}

}  // namespace sluice::runtime
