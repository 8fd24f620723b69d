#include <algorithm>

#include "sluice/check/simulation/simulation.h"

namespace sluice::check {

void Simulation::write(DeviceRun& d, const exe::Operand& o, const Range& r) {
  const exe::ValueId v = o.access == exe::Access::kUpdate ? o.made : o.value;
  const Instance i = make(v, o.bytes, o.spec.dtype, o.layout);
  bytes_.write(r, i);
  if (v != exe::kNoValue) d.stack.back().values[v] = i;
}

/// Checks that each operand begins at a multiple of its element size, as kernels load whole
/// elements.
void Simulation::align(DeviceRun& d, std::span<const Touched> all) {
  for (const Touched& t : all) {
    const int64_t size = size_of(t.operand->spec.dtype);
    if (t.range.begin % size == 0) continue;
    bad(d, "bounds", "{} must begin at a multiple of {} bytes, got byte {}", name(t.operand->value),
        size, t.range.begin);
  }
}

/// Records that a step on a queue touches all these ranges at once, and checks that it may.
void Simulation::touch(DeviceRun& d, std::span<const Touched> all, int32_t queue) {
  for (const Touched& t : all) {
    const bool writes = t.operand->access != exe::Access::kRead;
    for (const Flight& f : d.flights) {
      // Transfers of one queue cannot race: they run one after another.
      if (f.queue == queue || !(writes || f.writes) || !f.memory.overlaps(t.range)) continue;
      bad(d, "race", "bytes [{}, {}) overlap the transfer in flight with token {} on queue {}",
          t.range.begin, t.range.end, f.token, f.queue);
    }
    if (d.window.conflicts(t.range, writes, t.grid)) {
      bad(d, "sync",
          "{} {} in [{}, {}), which other workers may still touch; a barrier is required before",
          writes ? "writes" : "reads", name(t.operand->value), t.range.begin, t.range.end);
    }
  }
  for (const Touched& t : all)
    d.window.touch(t.range, t.operand->access != exe::Access::kRead, t.grid);
}

Simulation::Outcome Simulation::kernel(DeviceRun& d, const exe::Kernel& k) {
  std::vector<Touched> all;
  all.reserve(k.operands.size());
  for (const exe::Operand& o : k.operands) {
    Range r;
    if (!resolve(d, o.at, o.bytes, r)) return Outcome::kDone;
    all.push_back({&o, r, Grid::of(k.tasks, o.task_stride, o.task_pitch, r.begin)});
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const exe::Operand& o = *all[i].operand;
    if (o.access != exe::Access::kWrite) {
      read(d, o, all[i].range, lookup(d.stack.back(), o.value), fmt::format("operand {}", i));
    }
  }
  align(d, all);
  overlaps(d, k.may_coincide, all);
  touch(d, all, 0);
  for (const Touched& t : all) {
    if (t.operand->access != exe::Access::kRead) write(d, *t.operand, t.range);
  }
  return Outcome::kDone;
}

void Simulation::overlaps(DeviceRun& d, std::span<const std::pair<int32_t, int32_t>> may_coincide,
                          std::span<const Touched> all) {
  for (size_t out = 0; out < all.size(); ++out) {
    if (all[out].operand->access == exe::Access::kRead) continue;
    for (size_t in = 0; in < all.size(); ++in) {
      if (in == out || !all[in].range.overlaps(all[out].range)) continue;
      if (all[in].operand->access != exe::Access::kRead) {
        if (in < out)
          bad(d, "overlap", "operands {} and {} are both written and share bytes", in, out);
        continue;
      }
      const std::pair<int32_t, int32_t> pair(static_cast<int32_t>(in), static_cast<int32_t>(out));
      const bool listed =
          std::find(may_coincide.begin(), may_coincide.end(), pair) != may_coincide.end();
      if (!listed || !(all[in].range == all[out].range)) {
        bad(d, "overlap", "operand {} shares bytes with operand {}, which is written, and {}", in,
            out, listed ? "they are not exactly the same" : "they may not coincide");
      } else if (!(all[in].grid == all[out].grid)) {
        bad(d, "tasks", "operands {} and {} coincide, but a task reads what another writes", in,
            out);
      }
    }
  }
}

Simulation::Outcome Simulation::collective(DeviceRun& d, const exe::Collective& c) {
  int64_t& run = collectives_[{d.device, c.group}];
  int64_t sequence = 0;
  if (!evaluate(d, c.sequence, sequence)) return Outcome::kDone;
  if (sequence != run) {
    bad(d, "collective", "group {}: number of the collective must be {}, got {}", c.group, run,
        sequence);
  }
  ++run;
  d.window.barrier();
  std::vector<Touched> all;
  for (const exe::Operand& o : c.operands) {
    Range r;
    if (!resolve(d, o.at, o.bytes, r)) return Outcome::kDone;
    if (o.access != exe::Access::kWrite)
      read(d, o, r, lookup(d.stack.back(), o.value), fmt::format("operand {}", all.size()));
    all.push_back({&o, r, Grid::everyone()});
  }
  align(d, all);
  overlaps(d, c.may_coincide, all);
  touch(d, all, 0);
  for (const Touched& t : all) {
    if (t.operand->access != exe::Access::kRead) write(d, *t.operand, t.range);
  }
  d.window.barrier();
  return Outcome::kDone;
}

void Simulation::stream_entry(DeviceRun& d, const exe::Issue& i) {
  StreamState& s = streams_[i.stream()];
  const ActorId actor = clocks_.actor(d.device, i.queue);
  clocks_.learn(actor, clocks_.now(clocks_.actor(d.device, 0)));
  int64_t entry = 0;
  if (!evaluate(d, i.entry, entry)) return;
  if (entry != s.next) {
    bad(d, "stream", "stream '{}': entry must be {}, got {}", e_.streams[i.stream()].name, s.next,
        entry);
  }
  if (!clocks_.knows(actor, s.last)) {
    bad(d, "race",
        "nothing orders this use of stream '{}' after its use on another queue or device",
        e_.streams[i.stream()].name);
  }
  s.next = entry + 1;
  s.last = clocks_.tick(actor);
}

/// Computes the bytes of the tier that a transfer may touch, and checks the value that a load finds
/// there. Returns false if the entry does not exist.
bool Simulation::remote_entry(DeviceRun& d, const exe::Issue& i, Range& entry) {
  const exe::RemoteBufferPlan& b = e_.remote_buffers[i.buffer()];
  const bool load = i.kind == exe::TransferKind::kRemoteLoad;
  if (i.entry_from) {
    // The entry is read and checked at run time, so the transfer may touch any entry.
    entry = {b.arena, b.offset, b.offset + b.entries * b.entry_stride};
    remote_.move(i, d.device, std::nullopt, d.stack.back().path);
  } else {
    int64_t number = 0;
    if (!evaluate(d, i.entry, number)) return false;
    if (number < 0 || number >= b.entries) {
      bad(d, "remote", "'{}': entry must be in [0, {}), got {}", b.name, b.entries, number);
      stop_ = true;
      return false;
    }
    const int64_t begin = b.offset + number * b.entry_stride;
    entry = {b.arena, begin, begin + i.memory.bytes};
    remote_.move(i, d.device, number, d.stack.back().path);
  }
  entry_in_flight(d, i, entry);
  const ActorId actor = clocks_.actor(d.device, i.queue);
  clocks_.learn(actor, clocks_.now(clocks_.actor(d.device, 0)));
  if (!tiers_.use(entry, !load, clocks_.tick(actor), clocks_)) {
    bad(d, "race", "nothing orders this {} of '{}' after an earlier use of the same bytes",
        load ? "load" : "store", b.name);
  }
  if (load && i.found != exe::kNoValue) {
    const Instance* expected = lookup(d.stack.back(), i.found);
    if (i.entry_from || expected == nullptr || !bytes_.holds(entry, *expected)) {
      bad(d, "remote", "the entry of '{}' must hold {}, but has {}", b.name, name(i.found),
          bytes_.describe(entry, e_));
    }
  }
  return true;
}

/// Checks that no transfer in flight uses the entry. The vector clocks do not suffice after a
/// branch. To them a transfer has ended if one arm has waited for a later transfer of its queue,
/// but the other arm may run instead.
void Simulation::entry_in_flight(DeviceRun& d, const exe::Issue& i, const Range& entry) {
  const bool load = i.kind == exe::TransferKind::kRemoteLoad;
  for (const Flight& f : d.flights) {
    const bool both_load = load && f.writes;
    if (f.queue == i.queue || both_load || !f.entry.exists() || !f.entry.overlaps(entry)) continue;
    bad(d, "race", "the entry is in use by the transfer in flight with token {} on queue {}",
        f.token, f.queue);
  }
}

Simulation::Outcome Simulation::issue(DeviceRun& d, const exe::Issue& i) {
  if (awaited_field(i) != nullptr) return Outcome::kBlocked;
  Activation& a = d.stack.back();
  const bool load =
      i.kind == exe::TransferKind::kStreamIn || i.kind == exe::TransferKind::kRemoteLoad;
  Range memory;
  if (!resolve(d, i.memory.at, i.memory.bytes, memory)) return Outcome::kDone;
  if (i.entry_from) {
    Range scalar;
    if (!resolve(d, i.entry_from->at, i.entry_from->bytes, scalar)) return Outcome::kDone;
    read(d, *i.entry_from, scalar, lookup(a, i.entry_from->value), "the entry");
    const Touched touched[] = {{&*i.entry_from, scalar, Grid{}}};
    touch(d, touched, 0);
  }
  if (!load) read(d, i.memory, memory, lookup(a, i.memory.value), "the transfer");
  const Touched touched[] = {{&i.memory, memory, Grid{}}};
  touch(d, touched, i.queue);
  Range entry;
  if (i.is_stream()) {
    feed_queue(d, i);
    stream_entry(d, i);
  } else if (!remote_entry(d, i, entry)) {
    return Outcome::kDone;
  }
  if (load) {
    write(d, i.memory, memory);
  } else if (entry.exists()) {
    for (Activation& caller : d.stack) {
      if (caller.loop && caller.loop->exit) caller.loop->exit->stored.insert(i.buffer());
    }
    const Instance* stored = lookup(a, i.memory.value);
    if (i.entry_from || stored == nullptr) {
      bytes_.forget(entry);
    } else {
      bytes_.write(entry, *stored);
    }
  }
  if (i.queue != 0) {
    const ActorId actor = clocks_.actor(d.device, i.queue);
    clocks_.learn(actor, clocks_.now(clocks_.actor(d.device, 0)));
    d.flights.push_back({i.queue, i.token, &a, memory, load, entry, clocks_.now(actor)});
    a.tokens.emplace_back(i.token, i.queue);
  }
  return Outcome::kDone;
}

Simulation::Outcome Simulation::wait(DeviceRun& d, const exe::Wait& w) {
  Activation& a = d.stack.back();
  const auto token = std::find(a.tokens.begin(), a.tokens.end(), std::pair(w.token, w.queue));
  if (token == a.tokens.end()) {
    bad(d, "wait", "no transfer with token {} is in flight on queue {}", w.token, w.queue);
    return Outcome::kDone;
  }
  a.tokens.erase(token);
  // All earlier transfers of the queue have ended too.
  const auto last = std::find_if(d.flights.begin(), d.flights.end(), [&](const Flight& f) {
    return f.owner == &a && f.token == w.token && f.queue == w.queue;
  });
  if (last == d.flights.end()) return Outcome::kDone;
  clocks_.learn(clocks_.actor(d.device, 0), last->clock);
  const auto ended = static_cast<size_t>(last - d.flights.begin());
  for (size_t i = 0; i <= ended; ++i) {
    // Only worker 0 has waited. Record the touch now, so that other workers need a barrier first.
    const Flight& f = d.flights[i];
    if (f.queue == w.queue) d.window.touch(f.memory, f.writes, Grid{});
  }
  d.flights.erase(
      std::remove_if(d.flights.begin(), d.flights.begin() + static_cast<int64_t>(ended) + 1,
                     [&](const Flight& f) { return f.queue == w.queue; }),
      d.flights.begin() + static_cast<int64_t>(ended) + 1);
  return Outcome::kDone;
}

Simulation::Outcome Simulation::send(DeviceRun& d, const exe::Send& s) {
  const exe::Channel& c = e_.channels[s.channel];
  ChannelState& state = channels_[s.channel];
  const int64_t number = state.sent;
  const int64_t slot = number % c.capacity;
  if (state.slots.count(slot) != 0) return Outcome::kBlocked;
  int64_t message = 0;
  Range r;
  if (!evaluate(d, s.message, message) || !resolve(d, s.operand.at, s.operand.bytes, r))
    return Outcome::kDone;
  if (message != number)
    bad(d, "channel", "channel '{}': must send message {}, got {}", c.name, number, message);
  const Instance* sent = lookup(d.stack.back(), s.operand.value);
  read(d, s.operand, r, sent, "the message");
  const Touched touched[] = {{&s.operand, r, Grid{}}};
  touch(d, touched, 0);
  const ActorId actor = clocks_.actor(d.device, 0);
  if (const auto freed = state.freed.find(slot); freed != state.freed.end())
    clocks_.learn(actor, freed->second);
  clocks_.tick(actor);
  // The message in the slot is a new value that replaces the old content of the slot.
  const Instance copy =
      make(s.operand.value, s.operand.bytes, s.operand.spec.dtype, s.operand.layout);
  const int64_t begin = c.offset + slot * c.slot_bytes;
  bytes_.write({c.arena, begin, begin + s.operand.bytes}, copy);
  state.slots[slot] = {number, s.operand.value, copy, clocks_.now(actor)};
  ++state.sent;
  return Outcome::kDone;
}

Simulation::Outcome Simulation::receive(DeviceRun& d, const exe::Receive& m) {
  const exe::Channel& c = e_.channels[m.channel];
  ChannelState& state = channels_[m.channel];
  if (state.received == state.sent) return Outcome::kBlocked;
  const int64_t number = state.received;
  const int64_t slot = number % c.capacity;
  int64_t message = 0;
  Range r;
  if (!evaluate(d, m.message, message) || !resolve(d, m.operand.at, m.operand.bytes, r))
    return Outcome::kDone;
  if (message != number)
    bad(d, "channel", "channel '{}': must receive message {}, got {}", c.name, number, message);
  const Message& there = state.slots.at(slot);
  // A message without a value orders effects.
  const auto number_of = [&](exe::ValueId v) {
    return v == exe::kNoValue ? -1 : e_.values[v].message;
  };
  const int32_t sent = number_of(there.value), named = number_of(m.operand.value);
  const bool has_value = there.value != exe::kNoValue || m.operand.value != exe::kNoValue;
  const bool is_same = sent == named && (sent >= 0 || !has_value);
  if (!is_same || m.operand.bytes != there.instance.bytes ||
      m.operand.spec.dtype != there.instance.dtype || m.operand.layout != *there.instance.layout) {
    bad(d, "channel",
        "message {} of '{}' must be {} (value {} of the messages, {} bytes, '{}'), got {} (value "
        "{}, {} bytes, '{}')",
        number, c.name, name(there.value), sent, there.instance.bytes, *there.instance.layout,
        name(m.operand.value), named, m.operand.bytes, m.operand.layout);
  }
  const int64_t begin = c.offset + slot * c.slot_bytes;
  const Range at{c.arena, begin, begin + there.instance.bytes};
  if (!bytes_.holds(at, there.instance)) {
    bad(d, "channel", "slot {} of '{}' must hold message {}, but has {}", slot, c.name, number,
        bytes_.describe(at, e_));
  }
  const Touched touched[] = {{&m.operand, r, Grid{}}};
  touch(d, touched, 0);
  write(d, m.operand, r);
  const ActorId actor = clocks_.actor(d.device, 0);
  clocks_.learn(actor, there.clock);
  clocks_.tick(actor);
  state.freed[slot] = clocks_.now(actor);
  state.slots.erase(slot);
  ++state.received;
  return Outcome::kDone;
}

}  // namespace sluice::check
