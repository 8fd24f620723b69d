#include <algorithm>
#include <limits>
#include <utility>

#include "sluice/check/simulation/simulation.h"

namespace sluice::check {

/// Comparisons with one remembered state. The position repeats before the state does, if ever.
constexpr int kTries = 4;

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

/// Finds the loop of each device that has advanced since the last look. Returns whether all else in
/// the two positions is equal, and the loops have advanced by whole periods.
bool Simulation::find_advances(const Position& now, std::vector<Advance>& advances) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    const auto& before = looked_.devices[i];
    const auto& after = now.devices[i];
    if (before.size() != after.size()) return false;
    bool found = false;
    for (size_t level = 0; level < after.size(); ++level) {
      const Position::Level& a = before[level];
      const Position::Level& b = after[level];
      if (a == b) continue;
      const LoopRun* const loop = devices_[i].stack[level].loop.get();
      const int64_t by = b.iteration - a.iteration;
      if (found || a.function != b.function || a.step != b.step || loop == nullptr ||
          a.iteration < 0 || !loop->joint || by <= 0 || by % loop->period != 0)
        return false;
      found = true;
      advances.push_back({&devices_[i], level, by});
    }
  }
  if (now.collectives.size() != looked_.collectives.size()) return false;
  for (size_t c = 0; c < channels_.size(); ++c) {
    if ((now.sent[c] - looked_.sent[c]) % e_.channels[c].capacity != 0) return false;
  }
  return !advances.empty();
}

/// Returns the state that determines the rest of a run, without positions and counts of messages,
/// entries and collectives. Instances are numbered in the order found, as state_of() does. A clock
/// counts only where a later check reads it: does it know the last use of a stream? The bytes of
/// tiers do not change in loops that are left early, and knowledge of their uses only grows.
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
  const auto clock = [&](const std::vector<int64_t>& known) {
    for (const StreamState& s : streams_) {
      out.push_back(s.last.actor < 0 || known[static_cast<size_t>(s.last.actor)] >= s.last.time);
    }
  };
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
    const auto queues = e_.devices[static_cast<size_t>(d.device)].queues.size();
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
  for (size_t a = 0; a < e_.arenas.size(); ++a) {
    bytes_.arena(a).for_each([&](int64_t begin, int64_t end, const Content& c) {
      out.insert(out.end(), {begin, end, number(c.id), c.origin});
    });
    out.push_back(-1);
  }
  return out;
}

/// Moves the run on by `periods` times the distance between the last look and `now`.
void Simulation::skip(const Position& now, const std::vector<Advance>& advances, int64_t periods) {
  const auto moved = [&](const std::vector<int64_t>& before, const std::vector<int64_t>& after,
                         size_t i) { return periods * (after[i] - before[i]); };
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
  for (size_t s = 0; s < streams_.size(); ++s)
    streams_[s].next += moved(looked_.streams, now.streams, s);
  for (size_t c = 0; c < channels_.size(); ++c) {
    channels_[c].sent += moved(looked_.sent, now.sent, c);
    channels_[c].received += moved(looked_.received, now.received, c);
    for (auto& [slot, m] : channels_[c].slots) m.number += moved(looked_.sent, now.sent, c);
  }
  size_t i = 0;
  for (auto& [where, count] : collectives_)
    count += moved(looked_.collectives, now.collectives, i++);
}

/// Leaves the running loops early if the joint state of all devices repeats: then they take the
/// same steps in every period. Numbers of messages, entries and collectives are affine and must be
/// right before and after the skipped periods, so they are right in between.
void Simulation::leave_early_together() {
  const bool running = std::any_of(devices_.begin(), devices_.end(), [](const DeviceRun& d) {
    return std::any_of(d.stack.begin(), d.stack.end(),
                       [](const Activation& a) { return a.loop && a.loop->joint; });
  });
  if (!running || !findings_.empty()) return;
  const Position now = position();
  if (++rounds_ >= next_look_) {
    // The distance between looks doubles, so that each period is shorter than one of them.
    looked_ = now;
    looked_state_ = joint_state();
    next_look_ = 2 * rounds_;
    tries_ = kTries;
    return;
  }
  std::vector<Advance> advances;
  if (tries_ == 0 || !find_advances(now, advances)) return;
  int64_t periods = std::numeric_limits<int64_t>::max();
  for (const Advance& a : advances) {
    const Activation& at = a.device->stack[a.level];
    const int64_t trips = std::get<exe::Loop>(at.function->steps[at.step].body).trips;
    // The last period runs with its true counter.
    periods = std::min(periods, (trips - at.loop->iteration) / a.iterations - 1);
  }
  if (periods < 1) return;
  --tries_;
  if (joint_state() != looked_state_) return;
  skip(now, advances, periods);
  rounds_ = 0;
  next_look_ = 1;
}

}  // namespace sluice::check
