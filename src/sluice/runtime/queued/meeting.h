#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "sluice/runtime/queued/commands.h"

namespace sluice::runtime {

/// State of the collectives that a group of replicas runs on one device with queues. A member
/// cannot touch the memory of another one, so its queue copies bytes between them: before its share
/// the inputs that the share reads (into its room), and after it the outputs of the other shares. A
/// member arrives at each stage with a mark. The other members wait for that mark on their queues,
/// so that no host waits for a device.
class QueueMeeting {
 public:
  /// The stages of a collective, by what the commands before a member's mark have done.
  enum class Stage : uint8_t {
    kReady,  ///< The member's input is complete.
    /// Its share is done, and it has copied all that it reads of the other members' inputs.
    kMade,
    kTaken  ///< It has copied its parts of the peers' outputs.
  };
  static constexpr size_t kStages = 3;

  /// The addresses of a member's operands, for the other members. The member sets it before it
  /// arrives at kReady. The others read it once all have arrived there, and not after they have
  /// arrived at the last stage.
  struct Operands {
    DeviceAddress input;
    DeviceAddress output;
  };
  /// A member's device and queue. The member sets it before it arrives for the first time, and
  /// never again.
  struct MemberQueue {
    QueuedDevice* device = nullptr;
    Commands* commands = nullptr;
  };

  explicit QueueMeeting(int32_t members) : members_(static_cast<size_t>(members)) {}

  int32_t members() const { return static_cast<int32_t>(members_.size()); }
  Operands& operands(int32_t member) { return at(member).operands; }
  MemberQueue& member_queue(int32_t member) { return at(member).member_queue; }

  /// Records that a member has arrived at a stage of collective `number`, counted from 0. `mark` is
  /// the mark of its queue after the commands of that stage. A collective may skip its last stages
  /// if all members do so.
  void arrive(int32_t member, int64_t number, Stage stage, int64_t mark);
  /// Returns whether all members have arrived at a stage of collective `number`, or at a later one.
  bool all_arrived(int64_t number, Stage stage) const;
  /// Returns the mark with which a member arrived at a stage. all_arrived() must be true.
  int64_t mark(int32_t member, Stage stage) const {
    return sluice::at(members_, member).mark_of(stage);
  }
  /// Prepares a run.
  void reset();

 private:
  struct alignas(64) Member {
    MemberQueue member_queue;
    Operands operands;
    std::array<int64_t, kStages> marks{};
    int64_t& mark_of(Stage stage) { return sluice::at(marks, stage); }
    int64_t mark_of(Stage stage) const { return sluice::at(marks, stage); }
    /// Position of the last arrival in the sequence of all stages of all collectives, from 1.
    std::atomic<int64_t> arrived{0};
  };

  static int64_t position(int64_t number, Stage stage) {
    return number * static_cast<int64_t>(kStages) + static_cast<int64_t>(stage) + 1;
  }
  Member& at(int32_t member) { return sluice::at(members_, member); }

  std::vector<Member> members_;
};

/// Returns whether the share of any member has such a range: BoundCollective::reads or ::writes.
bool any_bytes(const BoundCollective& collective, ByteRange (*range)(const void*, int64_t),
               int64_t members);

/// Returns the bytes of a copy in a room, so that the next one is aligned.
int64_t room_of(const ByteRange& range);
/// Returns the bytes of a room for the collective: a copy of the range that the share of a member
/// reads, for each other member.
int64_t room_bytes(const BoundCollective& collective, int64_t members);

}  // namespace sluice::runtime
