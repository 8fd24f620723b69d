#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/runtime/channel.h"
#include "sluice/runtime/loaded_program.h"
#include "sluice/runtime/placement.h"
#include "sluice/runtime/process_group.h"
#include "sluice/runtime/queued/meeting.h"

namespace sluice::runtime {

/// State of the collectives that a group of replicas runs on one device: arrivals and operand
/// addresses. Each member runs its share of a collective. Members in other processes participate by
/// messages. A process first receives the input bytes that its members' shares read. Afterwards it
/// receives the output bytes that shares of other processes write.
class Meeting {
 public:
  /// Members [first, first + count) of the group run in process `process`.
  struct ProcessMembers {
    int process = 0;
    int64_t first = 0;
    int64_t count = 0;
  };
  /// `parts` lists all members in ascending order, by process. `own` is the index of this process's
  /// part; each of its members has `workers` workers.
  Meeting(std::vector<ProcessMembers> parts, size_t own, int64_t workers);

  /// For each member: address of its input. A member of this process sets it before its arrival.
  std::vector<DeviceAddress> inputs;
  /// For each member: address of its output, equal to the input in an update. Null for members of
  /// other processes.
  std::vector<DeviceAddress> outputs;
  /// The current collective; the first member of this process sets it.
  const BoundCollective* collective = nullptr;
  int64_t first_member() const { return own().first; }

  /// come() records that one worker of a member has arrived at a collective; be_done() records that
  /// it has finished its part. A worker calls be_done() only after all_came(), and the next come()
  /// only after all_done().
  void come() { arrived_.fetch_add(1, std::memory_order_acq_rel); }
  void be_done() { come(); }
  /// Return whether all workers of all members have arrived at collective `number`, counted from 0,
  /// and whether all have finished it.
  bool all_came(int64_t number) const {
    return has_messages() ? received_.load(std::memory_order_acquire) > number : here_came(number);
  }
  bool all_done(int64_t number) const {
    return has_messages() ? finished_.load(std::memory_order_acquire) > number : here_done(number);
  }
  /// Prepares a run.
  void reset();

  bool has_messages() const { return parts_.size() > 1; }
  /// Sets the messages to members in other processes, and allocates room for `max` bytes from each
  /// of these members. `devices` are those of the members of this process.
  void connect(std::unique_ptr<Messages> messages, std::vector<OpenDevice*> devices, int64_t max);
  /// Returns the size of that room in bytes.
  int64_t room() const { return room_bytes_; }
  /// Advances sends and receives. Returns whether a collective made progress. Only one thread may
  /// call it.
  bool poll();
  /// Returns whether nothing is left to send or receive of the collectives that have begun.
  bool is_over() const { return !has_messages() || arrivals() == 2 * finished_.load() * strands_; }

 private:
  enum class Stage : uint8_t { kGathering, kInputs, kShares, kOutputs };

  const ProcessMembers& own() const { return parts_[own_]; }
  bool here_came(int64_t number) const { return arrivals() >= (2 * number + 1) * strands_; }
  bool here_done(int64_t number) const { return arrivals() >= (2 * number + 2) * strands_; }
  int64_t arrivals() const { return arrived_.load(std::memory_order_acquire); }
  std::span<std::byte> bytes_of(int64_t member, DeviceAddress operand,
                                const ByteRange& range) const;
  void exchange_inputs();
  void exchange_outputs();
  void copy_outputs();

  std::vector<ProcessMembers> parts_;
  size_t own_;
  int64_t strands_;  ///< Workers of all members of this process.
  alignas(64) std::atomic<int64_t> arrived_{0};

  std::unique_ptr<Messages> messages_;  ///< Null if all members are in this process.
  std::vector<OpenDevice*> devices_;    ///< Indexed by member of this process.
  DeviceAddress room_;
  int64_t room_bytes_ = 0;
  Stage stage_ = Stage::kGathering;          ///< Stage of collective number finished_.
  alignas(64) std::atomic<int64_t> received_{/// Number of collectives with all inputs received.
                                             0};
  std::atomic<int64_t> finished_{0};  ///< Number of collectives with all outputs received.
};

/// A replica as a member of a group.
struct Membership {
  Meeting* meeting = nullptr;      ///< Null on a device with queues.
  QueueMeeting* queued = nullptr;  ///< Null on any other device.
  int member = 0;
};

/// Runs the collectives of an executable's replicas: in memory within a process, by messages
/// between processes, and by copies of queues between devices that have them. No call blocks: a
/// strand that must wait calls again later.
class Communicator {
 public:
  /// `devices` are those of each replica of this process; null for devices of other processes.
  /// `group` is null if there is only this process. Error{kUsage} if the program has a device with
  /// queues and there are several processes. `placement` must outlive the communicator.
  Communicator(const exe::Executable& executable, const LoadedProgram& loaded,
               const std::vector<OpenDevices>& devices, const Placement& placement,
               std::shared_ptr<ProcessGroup> group);

  /// Returns the membership of a replica in a group on a device of this process.
  Membership membership(exe::DeviceId device, exe::GroupId group, int replica) const {
    return at(memberships_[device][group], replica - placement_.here().first);
  }
  /// Connects the channels of a replica of this process to devices in other processes.
  void connect(const exe::Executable& executable, int replica,
               Ids<exe::ChannelId, ChannelState>& channels);
  /// Prepares a run and discards all arrivals.
  void reset();
  /// Advances sends and receives for strands that wait. Returns whether a strand may continue. Only
  /// one thread may call it.
  bool poll();
  /// Whether a meeting has members in other processes.
  bool has_messages() const { return !remote_.empty(); }
  /// Returns whether nothing is left to send or receive of the collectives that have begun.
  bool is_over() const;
  /// Throws the error of a failed process.
  void check() const {
    if (group_ != nullptr) group_->check();
  }
  /// Reports to other processes that this process failed. Returns ProcessGroup::fail(), or true
  /// without a group.
  bool fail(const Error& error) { return group_ == nullptr || group_->fail(error); }
  /// Returns the bytes of memory that receive operands from other processes.
  int64_t room() const;

 private:
  struct GroupMeeting {
    exe::DeviceId device;
    exe::GroupId group;
    std::unique_ptr<Meeting> meeting;
  };

  /// Add the meetings of all groups of a grouping, on one device.
  void add_meetings(const exe::Executable& executable, const LoadedProgram& loaded,
                    const std::vector<OpenDevices>& devices, exe::DeviceId device,
                    exe::GroupId group);
  void add_queue_meetings(const exe::Executable& executable, exe::DeviceId device,
                          exe::GroupId group);

  std::shared_ptr<ProcessGroup> group_;
  const Placement& placement_;
  int next_tag_ = 1;  ///< Tag of the next meeting. Tags of channels follow those of all meetings.
                      ///< Agreement uses tag 0.
  std::vector<GroupMeeting> group_meetings_;
  std::vector<std::unique_ptr<QueueMeeting>> queued_;
  std::vector<Meeting*> remote_;  ///< Meetings with members in other processes.
  /// For each replica of this process.
  Ids<exe::DeviceId, Ids<exe::GroupId, std::vector<Membership>>> memberships_;
};

}  // namespace sluice::runtime
