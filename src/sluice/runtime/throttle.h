#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace sluice::runtime {

/// Gives a tier the bandwidth of a slower one: transfers take turns on one clock, whoever runs them, and who runs one sleeps
/// until its turn is over.
class Throttle {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// -1: transfers take the time they take.
  explicit Throttle(int64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  /// The end of a turn that begins now, or when the last one ends.
  Time reserve(int64_t bytes);
  /// Sleeps until then, or until cancel().
  void sleep_until(Time end);
  void cancel();
  /// Before a run: no turn is taken.
  void reset();

 private:
  int64_t bytes_per_second_;
  std::mutex lock_;
  std::condition_variable cancelled_now_;
  bool cancelled_ = false;
  Time free_{};
};

}  // namespace sluice::runtime
