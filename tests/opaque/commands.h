#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "family.h"

namespace sluice::opaque {

class CommandList;

/// Something that a queue does in its order.
struct Command {
  enum class Action : uint8_t { kWork, kMark, kWait, kStop };
  Action kind = Action::kStop;
  // Launches and copies:
  int64_t number = 0;  ///< From 1.
  std::string name;
  std::function<void()> run;
  // A wait for a position of another list:
  std::shared_ptr<CommandList> awaited;
  int64_t position = 0;
};

/// The commands of a queue, in their order. One thread pushes commands and one thread runs them; in
/// lazy mode any thread runs them under the lock of the family. The two threads share no lock. Only
/// passed() and wait_for_all() order the host after the commands. So the thread sanitizer sees
/// where such a call is missing.
///
/// Position n is after the first n commands.
class CommandList {
 public:
  /// Registers the list with the device and the family, until close().
  explicit CommandList(std::shared_ptr<DeviceState> device);
  ~CommandList();
  CommandList(const CommandList&) = delete;
  CommandList& operator=(const CommandList&) = delete;

  /// For the thread that pushes.
  void push(Command command);
  int64_t pushed() const { return pushed_.load(std::memory_order_relaxed); }
  bool has_room() const { return leaves_room(progress_.load(std::memory_order_relaxed)); }
  void wait_for_room() const;
  /// Waits until all commands have ended. Returns false if the device has failed.
  bool wait_for_all() const;
  /// Ends serve().
  void stop() { push({.kind = Command::Action::kStop}); }
  /// Leaves the device and the family, and discards commands that have not begun. Another queue may
  /// still hold the list to wait for its positions.
  void close();

  /// For any thread.
  int queue() const { return queue_; }  ///< Index in the family.
  bool passed(int64_t position) const {
    return progress_.load(std::memory_order_acquire) >= position;
  }
  int64_t begun() const { return begun_.load(std::memory_order_relaxed); }
  /// The device has failed: no position will pass from now on.
  void fail();

  /// For the thread that runs commands.
  void serve();
  bool can_run() const;
  void run_next();

 private:
  static constexpr int64_t kFailed = -1;
  struct Node {
    Command command;
    std::atomic<Node*> next{nullptr};
  };

  bool leaves_room(int64_t progress) const;
  const Command& front() const;
  bool may_begin(const Command& command) const;
  bool wait_for(const Command& command) const;
  void perform(const Command& command);

  const std::shared_ptr<DeviceState> device_;
  const int queue_;
  std::mt19937_64 random_;
  std::atomic<int64_t> pushed_{0};
  std::atomic<int64_t> progress_{0};  ///< Commands that have ended, or kFailed.
  std::atomic<int64_t> begun_{0};
  Node* last_;   ///< For the thread that pushes.
  Node* front_;  ///< For the thread that runs: the node before the next command.
};

}  // namespace sluice::opaque
