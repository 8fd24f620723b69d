#pragma once
#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace sluice {

/// A mutex that threads get in the order in which they asked for it. The thread that holds it may
/// lock it again. Allocates nothing.
class CallQueue {
 public:
  CallQueue();
  /// Whether the calling process made the queue. If not, it is a child of fork(), which has no
  /// thread of the session and must not lock the queue.
  bool in_own_process() const;
  /// Error{kUsage}, which names the call, in another process.
  void require_own_process(const char* call) const;
  void lock();
  /// Locks the queue if no other thread holds it or waits for it. Returns whether it did.
  bool try_lock();
  void unlock();

 private:
  const pid_t process_;
  const int forks_;   ///< Number of calls of fork() that led to `process_`.
  std::mutex guard_;  ///< Guards the members below.
  std::condition_variable wake_;
  std::thread::id owner_;
  int depth_ = 0;        ///< Number of nested locks of the owner.
  uint64_t next_ = 0;    ///< Number that the next thread gets.
  uint64_t served_ = 0;  ///< Number of the thread that holds the queue.
};

}  // namespace sluice
