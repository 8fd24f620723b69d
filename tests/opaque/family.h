#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "memory.h"
#include "options.h"
#include "race_check.h"
#include "sluice/base/error.h"

namespace sluice::opaque {

class CommandList;

/// The state that the open devices of one runtime::Device share. They may exchange data.
class Family {
 public:
  explicit Family(Options options);

  const Options options;
  RaceCheck races;
  std::atomic<int64_t> recordings{0};
  std::atomic<int64_t> enqueued{0};  ///< Launches and copies of all queues.
  std::atomic<int64_t> delayed{0};   ///< Launches and copies that began after a sleep.
  std::atomic<int64_t> blocked{0};   ///< Calls that have blocked because their queue was full.

  /// Locks the family in lazy mode. Error{kInternal} if a command of a queue calls. Every call of
  /// the interface holds this lock, so that one thread at a time runs commands.
  std::unique_lock<std::mutex> enter();
  /// Counts a call of the interface. Returns whether it must fail.
  bool count_call() {
    return calls_.fetch_add(1, std::memory_order_relaxed) + 1 == options.fail_at;
  }

  /// Adds or removes the commands of a queue. Returns the index of the queue, from 0.
  int add(CommandList& commands);
  void remove(CommandList& commands);

  /// Lazy mode, under the lock: run one command that can begin; some of them; or as many as it
  /// takes. run_one() returns false if no command can begin.
  bool run_one();
  void run_some();
  void run_until(const std::function<bool()>& done);

 private:
  std::mutex mutex_;
  std::atomic<int64_t> calls_{0};
  std::mutex lists_mutex_;
  std::vector<CommandList*> lists_;
  int added_ = 0;
  std::mt19937_64 random_;
};

/// The part of an open device that its queues share and that lives as long as they do.
class DeviceState {
 public:
  explicit DeviceState(std::shared_ptr<Family> of) : family(std::move(of)) {}
  ~DeviceState();

  const std::shared_ptr<Family> family;
  Memory memory;

  /// Stores the first error of this device. From then on, none of its commands begins.
  void fail(const Error& error);
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Throws the stored error.
  [[noreturn]] void rethrow() const;
  /// Counts a call of the interface that loses the device if it must fail, and throws.
  void count_call();

  void add(CommandList& commands);
  void remove(CommandList& commands);

 private:
  mutable std::mutex mutex_;
  std::unique_ptr<Error> error_;
  std::atomic<bool> failed_{false};
  std::vector<CommandList*> lists_;
};

/// While an object of this class exists, its thread runs a command of a queue.
class InsideCommand {
 public:
  InsideCommand();
  ~InsideCommand();
  InsideCommand(const InsideCommand&) = delete;
  InsideCommand& operator=(const InsideCommand&) = delete;
};

}  // namespace sluice::opaque
