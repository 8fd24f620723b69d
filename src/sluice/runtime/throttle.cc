#include "sluice/runtime/throttle.h"

#include <algorithm>

namespace sluice::runtime {

Throttle::Time Throttle::reserve(int64_t bytes) {
  if (bytes_per_second_ < 0) return {};
  const std::chrono::duration<double> pause(static_cast<double>(bytes) /
                                            static_cast<double>(bytes_per_second_));
  const std::lock_guard lock(lock_);
  free_ = std::max(std::chrono::steady_clock::now(), free_) +
          std::chrono::duration_cast<std::chrono::nanoseconds>(pause);
  return free_;
}

void Throttle::sleep_until(Time end) {
  if (bytes_per_second_ < 0) return;
  std::unique_lock lock(lock_);
  cancelled_now_.wait_until(lock, end, [&] { return cancelled_; });
}

void Throttle::cancel() {
  const std::lock_guard lock(lock_);
  cancelled_ = true;
  cancelled_now_.notify_all();
}

void Throttle::reset() {
  const std::lock_guard lock(lock_);
  cancelled_ = false;
  free_ = {};
}

}  // namespace sluice::runtime
