#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/error.h"

namespace sluice::runtime {

/// Messages between processes. Messages from one process to another arrive in the order sent. The
/// caller keeps the bytes untouched until done() or ProcessGroup::fail().
class Messages {
 public:
  /// Discards messages that have not arrived.
  virtual ~Messages() = default;
  virtual void send(int to, std::span<const std::byte> bytes) = 0;
  /// Receives exactly as many bytes as the other process sends.
  virtual void receive(int from, std::span<std::byte> bytes) = 0;
  /// Returns whether all messages have been sent and received. Never blocks.
  virtual bool done() = 0;
};

/// The processes that run one program together. Each runs some devices of some replicas. All
/// processes make the same calls in the same order, each from one thread at a time.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns the number of cores that each process has for itself, at least 1.
  virtual int usable_cores() const = 0;
  /// Returns the messages of a tag, counted from 0. Messages of different tags are independent.
  virtual std::unique_ptr<Messages> messages(int tag) = 0;
  /// Throws the error of a failed process, or Error{kPeerLost} if a process is gone. A group never
  /// continues without one of its processes. The call is cheap; every loop that waits for messages
  /// makes it.
  virtual void check() const = 0;
  /// Reports to the other processes that this process stops; called once. Afterwards no message
  /// touches any bytes. Returns whether this process should report the error to its user. Returns
  /// false if another process had failed before, or one of lower rank failed at the same time.
  virtual bool fail(const Error& error) = 0;
};

/// Returns the error of a run that was stopped by a request.
Error stop_error();

/// Small exchanges between processes outside of programs. A null group represents this process
/// alone; then nothing is sent.
class Agreement {
 public:
  explicit Agreement(std::shared_ptr<ProcessGroup> group);

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }
  /// Copies `bytes` of process `root` to `bytes` of every process.
  void broadcast(int root, std::span<std::byte> bytes);
  /// Each of `blocks` equal blocks of `bytes` has one equal part for each element of `owners`.
  /// Copies part p of each block from process owners[p] to every process. Error{kStopped} once
  /// `stop` is set.
  void share(std::span<std::byte> bytes, std::span<const int> owners, int64_t blocks = 1,
             const std::atomic<bool>* stop = nullptr);
  /// Shares size() equal parts of `bytes`; part p is that of process p.
  void gather(std::span<std::byte> bytes);
  /// Returns the values of all processes, in the order of their ranks. All have equally many.
  template <typename T>
  std::vector<T> gathered(const std::vector<T>& own) {
    std::vector<T> all;
    for (int r = 0; r < size(); ++r) all.insert(all.end(), own.begin(), own.end());
    gather(std::as_writable_bytes(std::span(all)));
    return all;
  }
  /// Returns whether `value` is true in any process.
  bool any(bool value);
  /// Error{kUsage} in every process unless `text` is equal in all. `what` names the text in the
  /// message, for example "plans".
  void require_same(std::string_view what, std::string_view text);

 private:
  void send_to_all(std::span<const std::byte> bytes);
  void finish(std::string_view doing, const std::atomic<bool>* stop = nullptr);

  std::shared_ptr<ProcessGroup> group_;
  std::unique_ptr<Messages> messages_;
};

}  // namespace sluice::runtime
