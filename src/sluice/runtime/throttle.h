#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace sluice::runtime {

/// Limits a tier to the bandwidth of a slower one. Transfers are serialised on one clock, whichever
/// threads run them. A thread sleeps until its transfer ends on that clock.
class Throttle {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Sets the bandwidth; -1: no limit.
  explicit Throttle(int64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  /// Reserves time for `bytes`, from now or from the end of the last reservation. Returns the end.
  Time reserve(int64_t bytes);
  /// Sleeps until `end`, or until cancel().
  void sleep_until(Time end);
  void cancel();
  /// Prepares a run: discards all reservations.
  void reset();

 private:
  int64_t bytes_per_second_;
  std::mutex lock_;
  std::condition_variable cancelled_now_;
  bool cancelled_ = false;
  Time free_{};
};

}  // namespace sluice::runtime
