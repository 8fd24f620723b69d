#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "sluice/check/simulation/memory.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// One queue of one device.
using ActorId = Id<struct ActorTag>;
/// For each actor, its latest moment that is known to have passed.
using Clock = Ids<ActorId, int64_t>;

/// A moment of an actor.
struct Epoch {
  ActorId actor;
  int64_t time = 0;
};

/// Vector clocks: for each actor, the latest moment of every actor that it knows to have passed.
class Clocks {
 public:
  explicit Clocks(const exe::Executable& executable);

  ActorId actor(exe::DeviceId device, int32_t queue) const {
    return ActorId(first_[device] + queue);
  }
  /// Advances the actor to a new moment and returns that moment.
  Epoch tick(ActorId actor);
  const Clock& now(ActorId actor) const { return now_[actor]; }
  void learn(ActorId actor, const Clock& other);
  /// Forgets what the queues of a device have learned since `before` about moments before it.
  void forget_since(exe::DeviceId device, const Clocks& before);
  /// Returns whether the actor knows that the moment has passed.
  bool knows(ActorId actor, const Epoch& e) const {
    return !e.actor.valid() || now(actor)[e.actor] >= e.time;
  }

 private:
  Ids<exe::DeviceId, ActorId> first_;  ///< The compute queue of each device.
  Ids<ActorId, Clock> now_;
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
  const IntervalMap<Uses>& arena(exe::ArenaId a) const { return arenas_[a]; }

 private:
  Ids<exe::ArenaId, IntervalMap<Uses>> arenas_;
};

/// A message in a slot of a channel.
struct Message {
  int64_t number = 0;
  exe::ValueId value = exe::kNoValue;
  Instance instance;
  Clock clock;  ///< Clock of the sender when it sent the message.
};

struct ChannelState {
  int64_t sent = 0;
  int64_t received = 0;
  std::map<int64_t, Message> slots;  ///< Messages in full slots, by slot.
  /// For each slot: clock of the receiver when it freed the slot.
  std::map<int64_t, Clock> freed;
};

struct StreamState {
  int64_t next = 0;
  Epoch last;
};

}  // namespace sluice::check
