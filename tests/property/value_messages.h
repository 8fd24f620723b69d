#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "sluice/base/host_tensor.h"

namespace sluice::property {

using Array = std::shared_ptr<const HostTensor>;

/// Runs one device at a time: each is a thread, and one of them runs until it blocks on a message
/// or ends. Data that the devices share therefore needs no other lock.
class Messages {
 public:
  /// Runs all devices to their end. Throws the first error of a device.
  void run_devices(const std::vector<std::function<void()>>& devices);

  /// Stores a message. Error{kUsage} if that message was sent before and not yet received.
  void send(int32_t channel, int64_t message, Array value);
  /// Waits for the message and removes it. Error{kUsage} if each device that has not ended waits
  /// for a message that was not sent.
  Array receive(int32_t channel, int64_t message);

 private:
  using Key = std::pair<int32_t, int64_t>;  ///< Channel and message.

  bool stuck() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Array> sent_;
  std::set<Key> awaited_;
  size_t running_ = 0;  ///< Devices that have not ended, including waiting ones.
  std::exception_ptr error_;
};

}  // namespace sluice::property
