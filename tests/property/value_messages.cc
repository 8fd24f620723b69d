#include "value_messages.h"

#include <algorithm>
#include <thread>

#include "sluice/base/error.h"

namespace sluice::property {

void Messages::run_devices(const std::vector<std::function<void()>>& devices) {
  running_ = devices.size();
  std::vector<std::thread> threads;
  for (const auto& device : devices) {
    threads.emplace_back([this, &device] {
      const std::lock_guard guard(mutex_);
      try {
        device();
      } catch (...) {
        if (!error_) error_ = std::current_exception();
      }
      --running_;
      changed_.notify_all();
    });
  }
  for (std::thread& t : threads) t.join();
  if (error_) std::rethrow_exception(error_);
}

void Messages::send(int32_t channel, int64_t message, Array value) {
  require(sent_.emplace(Key(channel, message), std::move(value)).second, "message {} is sent twice",
          message);
  changed_.notify_all();
}

Array Messages::receive(int32_t channel, int64_t message) {
  const Key key(channel, message);
  awaited_.insert(key);
  changed_.notify_all();
  // Waiting releases the lock of this device and acquires it again afterwards.
  std::unique_lock lock(mutex_, std::adopt_lock);
  changed_.wait(lock, [&] { return sent_.contains(key) || stuck(); });
  lock.release();
  awaited_.erase(key);
  require(sent_.contains(key), "message {} is never sent", message);
  return std::move(sent_.extract(key).mapped());
}

bool Messages::stuck() const {
  return awaited_.size() == running_ &&
         std::none_of(awaited_.begin(), awaited_.end(),
                      [&](const Key& key) { return sent_.contains(key); });
}

}  // namespace sluice::property
