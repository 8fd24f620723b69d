#include "sluice/check/simulation/shared_state.h"

#include <algorithm>

namespace sluice::check {

Clocks::Clocks(const exe::Executable& executable) {
  int32_t count = 0;
  for (const exe::Device& d : executable.devices) {
    first_.push_back(count);
    count += static_cast<int32_t>(d.queues.size());
  }
  now_.assign(static_cast<size_t>(count), std::vector<int64_t>(static_cast<size_t>(count), 0));
}

Epoch Clocks::tick(int32_t actor) {
  const auto a = static_cast<size_t>(actor);
  return {actor, ++now_[a][a]};
}

void Clocks::learn(int32_t actor, const std::vector<int64_t>& other) {
  std::vector<int64_t>& mine = now_[static_cast<size_t>(actor)];
  for (size_t i = 0; i < mine.size(); ++i) mine[i] = std::max(mine[i], other[i]);
}

// A queue that did not know the last moment of another queue before may have learned it since. What
// it has learned of later moments alone, it may keep: without them there is nothing to know.
void Clocks::forget_since(int32_t device, const Clocks& before) {
  const auto first = static_cast<size_t>(first_[static_cast<size_t>(device)]);
  const size_t last = static_cast<size_t>(device) + 1 < first_.size()
                          ? static_cast<size_t>(first_[static_cast<size_t>(device) + 1])
                          : now_.size();
  for (size_t a = first; a < last; ++a) {
    for (size_t x = 0; x < now_.size(); ++x) {
      const bool own = x >= first && x < last;
      if (x == a || (own && before.now_[a][x] >= before.now_[x][x])) continue;
      now_[a][x] = before.now_[a][x];
    }
  }
}

bool TierUses::use(const Range& r, bool writes, const Epoch& at, const Clocks& clocks) {
  bool ordered = true;
  arenas_[static_cast<size_t>(r.arena)].change(r.begin, r.end, [&](Uses& u) {
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
