#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "sluice/check/memory.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// A moment of an actor: a queue of a device.
struct Epoch {
  int32_t actor = -1;
  int64_t time = 0;
};

/// Vector clocks: for each actor, what it knows to have happened.
class Clocks {
 public:
  explicit Clocks(const exe::Executable& executable);

  int32_t actor(int32_t device, int32_t queue) const {
    return first_[static_cast<size_t>(device)] + queue;
  }
  /// A new moment of the actor.
  Epoch tick(int32_t actor);
  const std::vector<int64_t>& now(int32_t actor) const { return now_[static_cast<size_t>(actor)]; }
  void learn(int32_t actor, const std::vector<int64_t>& other);
  /// The actor knows that the moment has passed.
  bool knows(int32_t actor, const Epoch& e) const {
    return e.actor < 0 || now(actor)[static_cast<size_t>(e.actor)] >= e.time;
  }

 private:
  std::vector<int32_t> first_;
  std::vector<std::vector<int64_t>> now_;
};

/// Who last used which bytes of the tiers, to find uses that nothing orders.
class TierUses {
 public:
  explicit TierUses(size_t arenas) : arenas_(arenas) {}
  /// Records the use at its moment; false if it is unordered with an earlier one and one of the two
  /// writes.
  bool use(const Range& r, bool writes, const Epoch& at, const Clocks& clocks);

 private:
  struct Uses {
    Epoch writer;
    std::vector<Epoch> readers;  ///< Since the writer, one an actor.
  };
  std::vector<IntervalMap<Uses>> arenas_;
};

/// A message that lies in a slot of a channel.
struct Message {
  int64_t number = 0;
  exe::ValueId value = exe::kNoValue;
  Instance instance;
  std::vector<int64_t> clock;  ///< What the sender knew.
};

struct ChannelState {
  int64_t sent = 0;
  int64_t received = 0;
  std::map<int64_t, Message> slots;               ///< Full ones.
  std::map<int64_t, std::vector<int64_t>> freed;  ///< What the receiver knew when it freed a slot.
};

struct StreamState {
  int64_t next = 0;
  Epoch last;
};

}  // namespace sluice::check
