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

/// Devices that take turns: each is a thread, one of them runs until it waits for a message or
/// ends. What the others keep needs no other lock.
class Messages {
 public:
  /// Runs all to their end; throws what the first that failed threw.
  void run_devices(const std::vector<std::function<void()>>& devices);

  /// Error{kUsage} if the message was sent before and is not yet taken.
  void send(int32_t channel, int64_t message, Array value);
  /// Waits for the message and takes it. Error{kUsage} if every device that has not ended waits
  /// for one that was not sent.
  Array receive(int32_t channel, int64_t message);

 private:
  using Key = std::pair<int32_t, int64_t>;  ///< Channel and message.

  bool stuck() const;

  std::mutex turn_;
  std::condition_variable changed_;
  std::map<Key, Array> sent_;
  std::set<Key> awaited_;
  size_t running_ = 0;  ///< Devices that have not ended, waiting ones included.
  std::exception_ptr error_;
};

}  // namespace sluice::property
