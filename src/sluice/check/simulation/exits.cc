#include <algorithm>
#include <tuple>
#include <utility>

#include "sluice/check/simulation/simulation.h"

/// A loop with a condition may exit before any iteration. The simulation runs all of them, so that
/// numbers of messages, entries and collectives are those that the plan names. Afterwards it joins
/// the states of all exits: what only some of them leave, or know, is forgotten. Devices exit after
/// the same iteration, so each iteration must receive what it sends.
namespace sluice::check {

void Simulation::begin_exits(DeviceRun& d, const exe::Loop& l, LoopRun& run) {
  const exe::Operand& condition = l.body.args[l.condition];
  run.exit = std::make_unique<ExitRun>(
      ExitRun{{d.device, l.trips, condition.value, condition.made, {}, {}, {}},
              bytes_.mark(),
              d.window,
              d.flights,
              clocks_,
              {},
              {},
              {}});
  if (facts_[l.body.function].moved > 0) run.exit->contents = remote_.contents();
  for (const auto& [token, queue] : d.stack.back().tokens) {
    bad(d, "wait", "token {} on queue {} is not waited for before the loop", token, queue);
  }
  for (const exe::ChannelId c : channels_.ids()) {
    if (e_.channels[c].from == d.device) run.exit->use.sent[c].first = channels_[c].sent;
    if (e_.channels[c].to == d.device) run.exit->use.received[c].first = channels_[c].received;
  }
  for (const StreamState& s : streams_) run.exit->streams.push_back(s.next);
}

void Simulation::read_condition(DeviceRun& d, const exe::Loop& l, LoopRun& run) {
  exe::Operand condition = l.body.args[l.condition];
  condition.access = exe::Access::kRead;
  Range range;
  if (!resolve(d, condition.at, condition.bytes, range)) return;
  const Instance& found = run.found[l.condition];
  read(d, condition, range, found.id < 0 ? nullptr : &found, "the condition");
  const Touched touched[] = {{&condition, range, Grid::everyone()}};
  touch(d, touched, 0);
  run.exit->window.merge(d.window);
}

/// Forgets the bytes that the loop has changed, in memory of its device and in remote buffers that
/// it stores to.
void Simulation::forget_changes(const DeviceRun& d, const ExitRun& exit) {
  for (const Range& r : bytes_.changed(exit.mark)) {
    const exe::Arena& arena = e_.arenas[r.arena];
    if (arena.device == d.device && arena.kind != exe::ArenaKind::kSlots) bytes_.forget(r);
    for (const exe::BufferId number : exit.stored) {
      const exe::RemoteBufferPlan& b = e_.remote_buffers[number];
      const Range common{r.arena, std::max(r.begin, b.offset),
                         std::min(r.end, b.offset + b.entries * b.entry_stride)};
      if (b.arena == r.arena && common.begin < common.end) bytes_.forget(common);
    }
  }
}

void Simulation::join_exits(DeviceRun& d, const exe::Loop& l, LoopRun& run) {
  Activation& a = d.stack.back();
  ExitRun& exit = *run.exit;
  forget_changes(d, exit);
  for (const exe::Operand& o : l.body.args) {
    Range r;
    if (o.access != exe::Access::kUpdate || !resolve(d, o.at, o.bytes, r)) continue;
    if (o.made == exe::kNoValue) {
      bytes_.forget(r);
      continue;
    }
    const Instance last = make(o.made, o.bytes, o.spec.dtype, o.layout);
    bytes_.write(r, last);
    a.values[o.made] = last;
  }
  bytes_.release();
  d.window = std::move(exit.window);
  join_flights(d.flights, exit.flights);
  clocks_.forget_since(d.device, exit.clocks);
  remote_.join(exit.contents, exit.stored, d.device);
  for (auto& [c, number] : exit.use.sent) number.second = channels_[c].sent - number.first;
  for (auto& [c, number] : exit.use.received) number.second = channels_[c].received - number.first;
  for (const exe::StreamId s : streams_.ids()) {
    const int64_t used = streams_[s].next - exit.streams[s];
    if (user_of_[s] == d.device && used > 0) exit.use.entries[s] = used;
  }
  exits_[l.exit][d.device].push_back(std::move(exit.use));
}

void Simulation::check_channels(const std::vector<ExitUse>& uses, const std::string& loop) {
  const auto of = [&](exe::DeviceId device) {
    return std::find_if(uses.begin(), uses.end(),
                        [&](const ExitUse& u) { return u.device == device; });
  };
  for (const exe::ChannelId i : channels_.ids()) {
    const exe::Channel& c = e_.channels[i];
    const auto from = of(c.from), to = of(c.to);
    const std::pair<int64_t, int64_t> none;
    const auto sent = from == uses.end() ? none : from->sent.at(i);
    const auto received = to == uses.end() ? none : to->received.at(i);
    if (sent.second == 0 && received.second == 0) continue;
    if (sent != received) {
      findings_.add("exit",
                    "program '{}', {}: the messages of channel '{}' must be sent and received in "
                    "the same iterations, got {} from {} sent and {} from {} received",
                    program_.name, loop, c.name, sent.second, sent.first, received.second,
                    received.first);
    }
  }
}

void Simulation::check_feeds(const std::vector<ExitUse>& uses, const std::string& loop) {
  std::map<exe::StreamId, int64_t> entries;
  for (const ExitUse& u : uses) entries.insert(u.entries.begin(), u.entries.end());
  for (const exe::Feed& feed : e_.feeds) {
    const int64_t first = entries[feed.rings.front().stream];
    for (const exe::FeedRing& r : feed.rings) {
      if (entries[r.stream] == first) continue;
      findings_.add("exit",
                    "program '{}', {}: must use all fields of feed '{}' equally often, got {} and "
                    "{} entries",
                    program_.name, loop, feed.name, first, entries[r.stream]);
    }
  }
}

void Simulation::check_exits() {
  const exe::Value none;
  const auto named = [&](exe::ValueId v) {
    const exe::Value& value = v == exe::kNoValue ? none : e_.values[v];
    return std::tie(value.tensor, value.version);
  };
  for (const auto& [number, by_device] : exits_) {
    size_t loops = 0;
    for (const auto& [device, all] : by_device) loops = std::max(loops, all.size());
    for (size_t n = 0; n < loops; ++n) {
      const std::string loop = fmt::format("loop {} of exit {}", n, number);
      std::vector<ExitUse> uses;
      for (const auto& [device, all] : by_device) {
        if (n < all.size()) uses.push_back(all[n]);
      }
      for (const ExitUse& u : uses) {
        const bool equal = u.trips == uses[0].trips && named(u.found) == named(uses[0].found) &&
                           named(u.made) == named(uses[0].made);
        if (!equal || uses.size() != by_device.size()) {
          findings_.add("exit",
                        "program '{}', {}: devices {} and {} must have one condition, got {} of {} "
                        "trips and {} of {}",
                        program_.name, loop, uses[0].device, u.device, name(uses[0].found),
                        uses[0].trips, name(u.found), u.trips);
        }
      }
      check_channels(uses, loop);
      check_feeds(uses, loop);
    }
  }
}

}  // namespace sluice::check
