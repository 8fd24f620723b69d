#include "sluice/session/call_queue.h"

namespace sluice {

void CallQueue::lock() {
  const std::thread::id self = std::this_thread::get_id();
  std::unique_lock hold(guard_);
  if (depth_ == 0 || owner_ != self) {
    const uint64_t number = next_++;
    wake_.wait(hold, [&] { return served_ == number; });
    owner_ = self;
  }
  ++depth_;
}

bool CallQueue::try_lock() {
  const std::thread::id self = std::this_thread::get_id();
  const std::lock_guard hold(guard_);
  const bool own = depth_ > 0 && owner_ == self;
  if (!own && next_ != served_) return false;
  if (!own) {
    ++next_;
    owner_ = self;
  }
  ++depth_;
  return true;
}

void CallQueue::unlock() {
  const std::lock_guard hold(guard_);
  if (--depth_ > 0) return;
  ++served_;
  if (served_ != next_) wake_.notify_all();
}

}  // namespace sluice
