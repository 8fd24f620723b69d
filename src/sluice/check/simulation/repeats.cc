#include <algorithm>
#include <limits>
#include <utility>

#include "sluice/check/simulation/simulation.h"

namespace sluice::check {

/// Comparisons with one remembered state. The position repeats before the state does, if ever.
constexpr int kTries = 4;

namespace {

/// The last use of each stream and of each byte of a tier. Tells which of them precede a clock.
class LastUses {
 public:
  /// Returns the number of a use, in the order of first calls; -1 if there is none.
  int64_t number(const Epoch& e) {
    if (!e.actor.valid()) return -1;
    // The bytes of one transfer are neighbours.
    for (size_t i = uses_.size(); i-- > 0 && uses_.size() - i <= kNeighbours;) {
      if (uses_[i].actor == e.actor && uses_[i].time == e.time) return static_cast<int64_t>(i);
    }
    uses_.push_back(e);
    return static_cast<int64_t>(uses_.size()) - 1;
  }
  void append_known(const Clock& clock, std::vector<int64_t>& out) const {
    for (size_t i = 0; i < uses_.size(); i += kBits) {
      int64_t bits = 0;
      for (size_t j = i; j < std::min(i + kBits, uses_.size()); ++j)
        bits = bits * 2 + (clock[uses_[j].actor] >= uses_[j].time);
      out.push_back(bits);
    }
  }

 private:
  static constexpr size_t kNeighbours = 8;
  static constexpr size_t kBits = 62;
  std::vector<Epoch> uses_;
};

/// Appends who used which bytes of an arena last.
void append_uses(const IntervalMap<TierUses::Uses>& arena, LastUses& uses,
                 std::vector<int64_t>& out) {
  arena.for_each([&](int64_t begin, int64_t end, const TierUses::Uses& u) {
    out.insert(out.end(), {begin, end, u.writer.actor, uses.number(u.writer),
                           static_cast<int64_t>(u.readers.size())});
    for (const Epoch& e : u.readers) out.insert(out.end(), {e.actor, uses.number(e)});
  });
  out.push_back(-1);
}

}  // namespace

Simulation::Position Simulation::position() const {
  Position now;
  for (const DeviceRun& d : devices_) {
    std::vector<Position::Level>& levels = now.devices.emplace_back();
    for (const Activation& a : d.stack)
      levels.push_back({a.function, a.step, a.loop ? a.loop->iteration : -1});
  }
  for (const StreamState& s : streams_) now.streams.push_back(s.next);
  for (const ChannelState& c : channels_) {
    now.sent.push_back(c.sent);
    now.received.push_back(c.received);
  }
  for (const auto& [where, count] : collectives_) now.collectives.push_back(count);
  return now;
}

/// Finds the loop of each device that has advanced from `before` to `now`. Returns whether all else
/// in the two positions is equal, the loops have advanced by whole periods, and `nesting` joint
/// loops enclose the outermost of them.
bool Simulation::find_advances(const Position& before, const Position& now, size_t nesting,
                               std::vector<Advance>& advances) {
  size_t outermost = std::numeric_limits<size_t>::max();
  for (size_t i = 0; i < devices_.size(); ++i) {
    const auto& old = before.devices[i];
    const auto& current = now.devices[i];
    if (old.size() != current.size()) return false;
    bool found = false;
    size_t joint = 0;
    for (size_t level = 0; level < current.size(); ++level) {
      const Position::Level& a = old[level];
      const Position::Level& b = current[level];
      const LoopRun* const loop = devices_[i].stack[level].loop.get();
      if (!(a == b)) {
        const int64_t by = b.iteration - a.iteration;
        if (found || a.function != b.function || a.step != b.step || loop == nullptr ||
            a.iteration < 0 || !loop->joint || by <= 0 || by % loop->period != 0)
          return false;
        found = true;
        outermost = std::min(outermost, joint);
        advances.push_back({&devices_[i], level, by});
      }
      joint += loop != nullptr && loop->joint;
    }
  }
  if (now.collectives.size() != before.collectives.size()) return false;
  for (const exe::ChannelId c : channels_.ids()) {
    if ((now.sent[c] - before.sent[c]) % e_.channels[c].capacity != 0) return false;
  }
  return outermost == nesting;
}

/// Returns the state that determines the rest of a run, without positions and counts of messages,
/// entries and collectives. Instances are numbered in the order found, as state_of() does. A clock
/// counts only where a later check reads it: which last uses of streams and of bytes of tiers does
/// it know?
std::vector<int64_t> Simulation::joint_state() const {
  std::vector<int64_t> out;
  std::unordered_map<int64_t, int64_t> numbers;
  const auto number = [&](int64_t id) {
    return id < 0 ? -1
                  : numbers.try_emplace(id, static_cast<int64_t>(numbers.size())).first->second;
  };
  const auto instance = [&](const Instance& i) {
    out.insert(out.end(), {number(i.id), i.bytes, static_cast<int64_t>(i.dtype),
                           reinterpret_cast<int64_t>(i.layout)});
  };
  const auto values = [&](const std::unordered_map<exe::ValueId, Instance>& all) {
    std::vector<std::pair<exe::ValueId, const Instance*>> sorted;
    for (const auto& [v, i] : all) sorted.emplace_back(v, &i);
    std::sort(sorted.begin(), sorted.end());
    out.push_back(static_cast<int64_t>(sorted.size()));
    for (const auto& [v, i] : sorted) {
      out.push_back(v);
      instance(*i);
    }
  };
  const auto range = [&](const Range& r) { out.insert(out.end(), {r.arena, r.begin, r.end}); };
  LastUses uses;
  for (const StreamState& s : streams_) out.insert(out.end(), {s.last.actor, uses.number(s.last)});
  for (const exe::ArenaId a : e_.arenas.ids()) append_uses(tiers_.arena(a), uses, out);
  const auto clock = [&](const Clock& known) { uses.append_known(known, out); };
  for (const Instance& i : variables_) instance(i);
  values(constants_);
  values(ends_);
  for (const DeviceRun& d : devices_) {
    for (const Activation& a : d.stack) {
      out.insert(out.end(), {static_cast<int64_t>(a.role), reinterpret_cast<int64_t>(a.call),
                             a.calls, static_cast<int64_t>(a.params.size())});
      range(a.frame);
      for (const Range& r : a.params) range(r);
      values(a.values);
      for (const auto& [token, queue] : a.tokens) out.insert(out.end(), {token, queue});
      out.push_back(-1);
      if (!a.loop) continue;
      for (const Instance& i : a.loop->found) instance(i);
      for (const Instance& i : a.loop->made) instance(i);
    }
    for (const Flight& f : d.flights) {
      const auto owner = std::find_if(d.stack.begin(), d.stack.end(),
                                      [&](const Activation& a) { return &a == f.owner; });
      out.insert(out.end(), {f.queue, f.token, owner - d.stack.begin(), f.writes});
      range(f.memory);
      range(f.entry);
      clock(f.clock);
    }
    out.push_back(-1);
    d.window.serialise(out);
    const auto queues = e_.devices[d.device].queues.size();
    for (size_t q = 0; q < queues; ++q)
      clock(clocks_.now(clocks_.actor(d.device, static_cast<int32_t>(q))));
  }
  for (const ChannelState& c : channels_) {
    out.push_back(c.sent - c.received);
    for (const auto& [slot, m] : c.slots) {
      out.insert(out.end(), {slot, m.number - c.received, m.value});
      instance(m.instance);
      clock(m.clock);
    }
    out.push_back(-1);
    for (const auto& [slot, freed] : c.freed) {
      out.push_back(slot);
      clock(freed);
    }
    out.push_back(-1);
  }
  feed_state(out);
  remote_.serialise(out);
  for (const exe::ArenaId a : e_.arenas.ids()) {
    bytes_.arena(a).for_each([&](int64_t begin, int64_t end, const ByteOrigin& c) {
      out.insert(out.end(), {begin, end, number(c.id), c.origin});
    });
    out.push_back(-1);
  }
  return out;
}

/// Returns the number of whole periods before the last one that the loops have left.
int64_t Simulation::left_periods(const std::vector<Advance>& advances) {
  int64_t periods = std::numeric_limits<int64_t>::max();
  for (const Advance& a : advances) {
    const Activation& at = a.device->stack[a.level];
    const int64_t trips = std::get<exe::Loop>(at.function->steps[at.step].body).trips;
    // The last period runs with its true counter.
    periods = std::min(periods, (trips - at.loop->iteration) / a.iterations - 1);
  }
  return std::max<int64_t>(periods, 0);
}

std::vector<RemoteLedger::Advance> Simulation::remote_advances(
    const std::vector<Advance>& advances) {
  std::vector<RemoteLedger::Advance> out;
  for (const Advance& a : advances)
    out.push_back({a.device->device, a.device->stack[a.level].loop->long_depth, a.iterations});
  return out;
}

/// Moves the run on by `periods` times the distance between two positions.
void Simulation::skip(const Position& before, const Position& now,
                      const std::vector<Advance>& advances, int64_t periods) {
  const auto moved = [&](const auto& old, const auto& current, auto i) {
    return periods * (current[i] - old[i]);
  };
  for (const Advance& a : advances) {
    std::deque<Activation>& stack = a.device->stack;
    stack[a.level].loop->iteration += periods * a.iterations;
    for (size_t level = a.level + 1; level < stack.size(); ++level) {
      for (size_t i = 0; i < stack[level].numbers.size(); ++i) {
        if (!evaluate(*a.device, stack[level - 1], stack[level].call->index_args[i],
                      stack[level].numbers[i]))
          return;
      }
    }
  }
  for (const exe::StreamId s : streams_.ids())
    streams_[s].next += moved(before.streams, now.streams, s);
  for (const exe::ChannelId c : channels_.ids()) {
    channels_[c].sent += moved(before.sent, now.sent, c);
    channels_[c].received += moved(before.received, now.received, c);
    for (auto& [slot, m] : channels_[c].slots) m.number += moved(before.sent, now.sent, c);
  }
  size_t i = 0;
  for (auto& [where, count] : collectives_)
    count += moved(before.collectives, now.collectives, i++);
}

/// Leaves the running loops early if the joint state of all devices repeats: then they take the
/// same steps in every period. Numbers of messages, entries and collectives are affine and must be
/// right before and after the skipped periods, so they are right in between.
void Simulation::leave_early_together() {
  size_t nested = 0;
  for (const DeviceRun& d : devices_) {
    const auto joint = std::count_if(d.stack.begin(), d.stack.end(),
                                     [](const Activation& a) { return a.loop && a.loop->joint; });
    nested = std::max(nested, static_cast<size_t>(joint));
  }
  looks_.resize(nested);
  if (nested == 0 || !findings_.empty()) return;
  const Position now = position();
  std::vector<int64_t> state;  // Empty until a comparison needs it.
  const auto current = [&]() -> const std::vector<int64_t>& {
    if (state.empty()) state = joint_state();
    return state;
  };
  // From the inside: an inner loop repeats in fewer rounds.
  for (size_t nesting = nested; nesting-- > 0;) {
    Look& look = looks_[nesting];
    if (++look.rounds >= look.next) {
      // The distance between compared states doubles, so that each period is shorter than one
      // distance.
      look = {look.rounds, 2 * look.rounds, kTries, now, remote_.progress(), current()};
      continue;
    }
    std::vector<Advance> advances;
    if (look.tries == 0 || !find_advances(look.position, now, nesting, advances)) continue;
    const int64_t periods = left_periods(advances);
    if (periods < 1) continue;
    --look.tries;
    const std::vector<RemoteLedger::Advance> remote = remote_advances(advances);
    if (current() != look.state || !remote_.repeats(look.remote, remote)) continue;
    remote_.skip(look.remote, remote, periods);
    skip(look.position, now, advances, periods);
    // Outer loops keep their compared states: they repeat although inner loops are left early.
    for (size_t inner = nesting; inner < nested; ++inner) looks_[inner] = {};
    return;
  }
}

}  // namespace sluice::check
