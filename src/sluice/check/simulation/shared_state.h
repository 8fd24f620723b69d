#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "sluice/check/simulation/memory.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// A moment of an actor. An actor is one queue of one device.
struct Epoch {
  int32_t actor = -1;
  int64_t time = 0;
};

/// Vector clocks: for each actor, the latest moment of every actor that it knows to have passed.
class Clocks {
 public:
  explicit Clocks(const exe::Executable& executable);

  int32_t actor(int32_t device, int32_t queue) const {
    return first_[static_cast<size_t>(device)] + queue;
  }
  /// Advances the actor to a new moment and returns that moment.
  Epoch tick(int32_t actor);
  const std::vector<int64_t>& now(int32_t actor) const { return now_[static_cast<size_t>(actor)]; }
  void learn(int32_t actor, const std::vector<int64_t>& other);
  /// Forgets what the queues of a device have learned since `before` about moments before it.
  void forget_since(int32_t device, const Clocks& before);
  /// Returns whether the actor knows that the moment has passed.
  bool knows(int32_t actor, const Epoch& e) const {
    return e.actor < 0 || now(actor)[static_cast<size_t>(e.actor)] >= e.time;
  }

 private:
  std::vector<int32_t> first_;
  std::vector<std::vector<int64_t>> now_;
};

/// Records the latest uses of each byte of the tiers, to find uses that nothing orders.
class TierUses {
 public:
  explicit TierUses(size_t arenas) : arenas_(arenas) {}
  /// Records a use at the moment `at`. Returns false if nothing orders it after an earlier use and
  /// one of the two writes.
  bool use(const Range& r, bool writes, const Epoch& at, const Clocks& clocks);

  struct Uses {
    Epoch writer;
    std::vector<Epoch> readers;  ///< Latest read of each actor since the last write.
  };
  const IntervalMap<Uses>& arena(size_t a) const { return arenas_[a]; }

 private:
  std::vector<IntervalMap<Uses>> arenas_;
};

/// A message in a slot of a channel.
struct Message {
  int64_t number = 0;
  exe::ValueId value = exe::kNoValue;
  Instance instance;
  std::vector<int64_t> clock;  ///< Clock of the sender when it sent the message.
};

struct ChannelState {
  int64_t sent = 0;
  int64_t received = 0;
  std::map<int64_t, Message> slots;  ///< Messages in full slots, by slot.
  /// For each slot: clock of the receiver when it freed the slot.
  std::map<int64_t, std::vector<int64_t>> freed;
};

struct StreamState {
  int64_t next = 0;
  Epoch last;
};

}  // namespace sluice::check
