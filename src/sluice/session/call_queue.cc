#include "sluice/session/call_queue.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "sluice/base/error.h"

namespace sluice {
namespace {

// Calls of fork() between the first process and this one. A step makes no system call, so it does
// not ask for the id of its process.
std::atomic<int> forks{0};

int count_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++forks; });
  SLUICE_CHECK(registered == 0);
  return forks;
}

}  // namespace

CallQueue::CallQueue() : process_(getpid()), forks_(count_forks()) {}

bool CallQueue::in_own_process() const { return forks == forks_; }

void CallQueue::require_own_process(const char* call) const {
  if (in_own_process()) return;
  fail(ErrorKind::kUsage,
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
