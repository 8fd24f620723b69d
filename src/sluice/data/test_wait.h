#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <thread>

/// Helpers for tests that wait for other threads.
namespace sluice::test {

/// Waits until `holds` returns true. Returns false after five minutes, to end a test that hangs.
template <typename F>
[[nodiscard]] bool wait_until(F&& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

/// Counts what threads make ahead of their consumer. Each addition is compared with a limit, so no
/// test has to pause until a thread may have made too much.
class LimitedCount {
 public:
  explicit LimitedCount(int64_t limit = std::numeric_limits<int64_t>::max()) : limit_(limit) {}
  void add() {
    if (++count_ > limit_) exceeded_ = true;
  }
  /// Sets the largest count, before the call that lets the threads continue.
  void limit(int64_t limit) { limit_ = limit; }
  int64_t count() const { return count_; }
  /// Waits until the count is the limit. Returns whether no addition has ever exceeded its limit.
  [[nodiscard]] bool reaches_limit() const {
    return wait_until([&] { return count_ >= limit_; }) && count_ == limit_ && !exceeded_;
  }

 private:
  std::atomic<int64_t> count_{0}, limit_;
  std::atomic<bool> exceeded_{false};
};

}  // namespace sluice::test
