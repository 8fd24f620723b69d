#include "sluice/check/simulation/shared_state.h"

#include <algorithm>

namespace sluice::check {

Clocks::Clocks(const exe::Executable& executable) {
  ActorId count(0);
  for (const exe::Device& d : executable.devices) {
    first_.push_back(count);
    count = ActorId(count + std::ssize(d.queues));
  }
  const auto actors = static_cast<size_t>(count);
  now_.assign(actors, Clock(actors, 0));
}

Epoch Clocks::tick(ActorId actor) { return {actor, ++now_[actor][actor]}; }

void Clocks::learn(ActorId actor, const Clock& other) {
  Clock& mine = now_[actor];
  for (const ActorId i : mine.ids()) mine[i] = std::max(mine[i], other[i]);
}

// A queue that did not know the last moment of another queue before may have learned it since. What
// it has learned of later moments alone, it may keep: without them there is nothing to know.
void Clocks::forget_since(exe::DeviceId device, const Clocks& before) {
  const ActorId first = first_[device];
  const exe::DeviceId next(device + 1);
  const ActorId last = first_.contains(next) ? first_[next] : now_.end_id();
  for (const ActorId a : IdRange(first, last)) {
    for (const ActorId x : now_.ids()) {
      const bool own = x >= first && x < last;
      if (x == a || (own && before.now_[a][x] >= before.now_[x][x])) continue;
      now_[a][x] = before.now_[a][x];
    }
  }
}

bool TierUses::use(const Range& r, bool writes, const Epoch& at, const Clocks& clocks) {
  bool ordered = true;
  arenas_[r.arena].change(r.begin, r.end, [&](Uses& u) {
    ordered &= clocks.knows(at.actor, u.writer);
    if (writes) {
      for (const Epoch& e : u.readers) ordered &= clocks.knows(at.actor, e);
      u.writer = at;
      u.readers.clear();
      return;
    }
    for (Epoch& e : u.readers) {
      if (e.actor == at.actor) {
        e = at;
        return;
      }
    }
    u.readers.push_back(at);
  });
  return ordered;
}

}  // namespace sluice::check
