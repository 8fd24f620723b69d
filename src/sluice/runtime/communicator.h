#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/runtime/loaded_program.h"
#include "sluice/runtime/process_group.h"

namespace sluice::runtime {

/// Where the replicas of a group meet on a device, and where their operands lie while they do. Members that other
/// processes run come as messages: first what the shares of this process read of their inputs, then what their shares
/// write of all outputs.
class Meeting {
 public:
  /// Members [first, first + count) of the group are of this process.
  struct Part {
    int process = 0;
    int64_t first = 0;
    int64_t count = 0;
  };
  /// By process, all members in order; `own` is the part of this one, whose members have `workers` each.
  Meeting(std::vector<Part> parts, size_t own, int64_t workers);

  std::vector<std::byte*>
      inputs;  ///< By member: each of this process writes its own before it comes.
  std::vector<std::byte*>
      outputs;  ///< The same as the inputs, if they are updated. Null: another process'.
  const BoundCollective* collective =
      nullptr;  ///< Which it is; by the first member of this process.
  int64_t first_member() const { return own().first; }

  /// One worker of a replica comes to a collective, and is done with its part of it: in turn, and only when all have
  /// come, or are done.
  void come() { arrived_.fetch_add(1, std::memory_order_acq_rel); }
  void be_done() { come(); }
  /// All workers of all members have come to the collective of this number, from 0; are done with it.
  bool all_came(int64_t number) const {
    return has_messages() ? received_.load(std::memory_order_acquire) > number : here_came(number);
  }
  bool all_done(int64_t number) const {
    return has_messages() ? finished_.load(std::memory_order_acquire) > number : here_done(number);
  }
  /// Before a run that has `expected` collectives here.
  void reset(int64_t expected);

  bool has_messages() const { return parts_.size() > 1; }
  /// How its members in other processes are reached, with room for `most` bytes from each.
  void connect(std::unique_ptr<Messages> messages, int64_t most);
  /// Bytes of that room.
  int64_t room() const { return static_cast<int64_t>(room_.size()); }
  /// Sends and receives what can be; whether a collective went on by it. By one thread.
  bool poll();
  /// Nothing is left to send or receive in this run.
  bool is_over() const { return !has_messages() || finished_.load() == expected_; }

 private:
  enum class Stage : uint8_t { kGathering, kInputs, kShares, kOutputs };

  const Part& own() const { return parts_[own_]; }
  bool here_came(int64_t number) const { return arrivals() >= (2 * number + 1) * strands_; }
  bool here_done(int64_t number) const { return arrivals() >= (2 * number + 2) * strands_; }
  int64_t arrivals() const { return arrived_.load(std::memory_order_acquire); }
  void exchange_inputs();
  void exchange_outputs();
  void copy_outputs();

  std::vector<Part> parts_;
  size_t own_;
  int64_t strands_;  ///< Workers of all members of this process.
  alignas(64) std::atomic<int64_t> arrived_{0};

  std::unique_ptr<Messages> messages_;  ///< Null if all members are of this process.
  std::vector<std::byte> room_;
  int64_t expected_ = 0;
  Stage stage_ = Stage::kGathering;               ///< Of collective number finished_.
  alignas(64) std::atomic<int64_t> received_{0};  ///< Collectives whose inputs are here,
  std::atomic<int64_t> finished_{0};              ///< and whose outputs are.
};

/// A replica's place in a group.
struct Membership {
  Meeting* meeting = nullptr;
  int member = 0;
};

/// How the replicas of an executable come together for collectives: those of one process in its memory, those of several
/// by messages. Nobody ever blocks: who comes looks whether all have come.
class Communicator {
 public:
  /// `group` is null if there is but this process.
  Communicator(const exe::Executable& executable, const LoadedProgram& loaded,
               std::shared_ptr<ProcessGroup> group);

  const ReplicaRange& here() const { return here_; }
  /// Of a replica of this process.
  Membership membership(int device, int32_t group, int replica) {
    return memberships_[(static_cast<size_t>(device) * groups_ + static_cast<size_t>(group)) *
                            static_cast<size_t>(here_.count) +
                        static_cast<size_t>(replica - here_.first)];
  }
  /// Before a run of a program: nobody has come anywhere.
  void reset(const exe::Program& program);
  /// Sends and receives what can be, for strands that wait; whether any of them may go on. By one thread.
  bool poll();
  /// Nothing is left to send or receive in this run.
  bool is_over() const;
  /// Throws what another process failed with.
  void check() const {
    if (group_ != nullptr) group_->check();
  }
  /// Tells other processes that this one failed (ProcessGroup::fail).
  bool fail(const Error& error) { return group_ == nullptr || group_->fail(error); }
  /// Bytes that hold what comes from other processes.
  int64_t room() const;

 private:
  struct Place {
    int32_t device = 0;
    int32_t group = 0;
    std::unique_ptr<Meeting> meeting;
  };

  std::shared_ptr<ProcessGroup> group_;
  ReplicaRange here_;
  size_t groups_;
  std::vector<Place> places_;
  std::vector<Meeting*> remote_;         ///< Those that need messages.
  std::vector<Membership> memberships_;  ///< By device, group, replica of this process.
};

}  // namespace sluice::runtime
