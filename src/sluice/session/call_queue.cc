#include "sluice/session/call_queue.h"

namespace sluice {

void CallQueue::lock() {
  const std::thread::id self = std::this_thread::get_id();
  std::unique_lock hold(guard_);
  if (depth_ == 0 || holder_ != self) {
    const uint64_t number = next_++;
    turn_.wait(hold, [&] { return served_ == number; });
    holder_ = self;
  }
  ++depth_;
}

bool CallQueue::try_lock() {
  const std::thread::id self = std::this_thread::get_id();
  const std::lock_guard hold(guard_);
  const bool own = depth_ > 0 && holder_ == self;
  if (!own && next_ != served_) return false;
  if (!own) {
    ++next_;
    holder_ = self;
  }
  ++depth_;
  return true;
}

void CallQueue::unlock() {
  const std::lock_guard hold(guard_);
  if (--depth_ > 0) return;
  ++served_;
  if (served_ != next_) turn_.notify_all();
}

}  // namespace sluice
