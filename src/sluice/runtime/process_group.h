#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sluice/base/error.h"

namespace sluice::runtime {

/// Messages on their way between processes. Those of a pair of processes arrive in the order in which they were sent; the
/// bytes stay untouched until done() or ProcessGroup::fail().
class Messages {
 public:
  /// What has not arrived by then never will.
  virtual ~Messages() = default;
  virtual void send(int to, std::span<const std::byte> bytes) = 0;
  /// As many bytes as the other sends.
  virtual void receive(int from, std::span<std::byte> bytes) = 0;
  /// Whether all of them are over. Never blocks.
  virtual bool done() = 0;
};

/// The processes that run one program together, each some of its replicas. All of them make the same calls in the same
/// order, each from one thread at a time.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Cores that each process has for itself, at least 1.
  virtual int usable_cores() const = 0;
  /// Those of one tag, from 0, are apart from all others.
  virtual std::unique_ptr<Messages> messages(int tag) = 0;
  /// Throws what this or another process failed with, or Error{kPeerLost} if one is gone: a group goes on whole. Costs next to nothing; whoever waits for
  /// messages calls it.
  virtual void check() const = 0;
  /// Tells the others that this process goes no further, once; after it no messages touch any bytes. Whether its user should
  /// hear of it from here: not if another one had failed before, nor if a lower one did at the same time.
  virtual bool fail(const Error& error) = 0;
};

/// Replicas [first, first + count).
struct ReplicaRange {
  int first = 0;
  int count = 1;
  bool contains(int replica) const { return replica >= first && replica < first + count; }
};

/// What this process runs of `replicas`: all if there is no group. Error{kUsage} unless all processes run as many.
ReplicaRange replicas_of_process(int replicas, const std::shared_ptr<ProcessGroup>& group);

/// Small things that processes tell each other outside of programs. A group of null is this process alone: nothing is sent.
class Agreement {
 public:
  explicit Agreement(std::shared_ptr<ProcessGroup> group);

  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }
  /// What process `root` has in `bytes` comes to be in those of all.
  void broadcast(int root, std::span<std::byte> bytes);
  /// In each of `blocks` equal blocks of `bytes`, part p of the `size()` equal parts comes to be what process p has there.
  void gather(std::span<std::byte> bytes, int64_t blocks = 1);
  /// Whether it is true of any process.
  bool any(bool value);
  /// Error{kUsage} in every process if `text` is not the same in all; `what` names it: "plans".
  void require_same(std::string_view what, std::string_view text);

 private:
  void finish(std::string_view doing);

  std::shared_ptr<ProcessGroup> group_;
  std::unique_ptr<Messages> messages_;
};

}  // namespace sluice::runtime
