#include "sluice/session/call_queue.h"

#include <unistd.h>

#include "sluice/base/error.h"

namespace sluice {

CallQueue::CallQueue() : process_(getpid()) {}

bool CallQueue::in_own_process() const { return getpid() == process_; }

void CallQueue::require_own_process(const char* call) const {
  require(in_own_process(),
          "{}: the session must be used by the process that made it ({}), got process {}; make the "
          "session after fork()",
          call, process_, getpid());
}

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
