#include "sluice/check/simulation/ledger.h"

#include <algorithm>
#include <utility>

#include "sluice/base/hash.h"

namespace sluice::check {
namespace {

constexpr uint64_t kIteration = 0x9e3779b97f4a7c15U;  // Multiplier of the hash of a long loop.

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15U)) * 0xbf58476d1ce4e5b9U;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebU;
  return x ^ (x >> 32);
}

}  // namespace

RemoteLedger::RemoteLedger(const exe::Executable& executable) {
  for (const exe::VariablePlan& v : executable.variables) {
    if (v.buffer >= 0) initial_[{v.buffer, v.entry}] = hash64(v.path);
  }
}

/// Returns the digest of an entry to which the run has not stored.
uint64_t RemoteLedger::first(exe::BufferId buffer, int64_t entry) const {
  const auto initial = initial_.find({buffer, entry});
  return initial == initial_.end() ? mix(1, static_cast<uint64_t>(entry)) : initial->second;
}

RemoteLedger::Activation RemoteLedger::entry(exe::DeviceId device) {
  return mix(2, static_cast<uint64_t>(device));
}

RemoteLedger::Activation RemoteLedger::callee(Activation caller, int64_t call, int64_t iteration) {
  return mix(mix(caller, static_cast<uint64_t>(call)), static_cast<uint64_t>(iteration));
}

RemoteLedger::EntryState RemoteLedger::at(exe::BufferId buffer, const Buffer& contents,
                                          int64_t entry) const {
  const auto named = contents.entries.find(entry);
  if (named != contents.entries.end()) return named->second;
  const uint64_t unset = first(buffer, entry);
  return {contents.others == 0 ? unset : mix(unset, contents.others)};
}

/// Returns the digest of a content for a load that runs now.
uint64_t RemoteLedger::seen(const EntryState& content) const {
  if (content.depth == 0) return content.digest;
  const auto& running = progress_.loops.at(content.device);
  // Contents from before an exiting loop may belong to a loop of another device that has ended.
  if (content.depth > std::ssize(running)) return content.digest;
  const int64_t now = sluice::at(running, content.depth - 1).iteration;
  return mix(content.digest, static_cast<uint64_t>(now - content.iteration));
}

RemoteLedger::EntryState RemoteLedger::set_now(uint64_t digest, exe::DeviceId device) const {
  const auto running = progress_.loops.find(device);
  if (running == progress_.loops.end() || running->second.empty()) return {digest, device};
  return {digest, device, static_cast<int32_t>(running->second.size()),
          running->second.back().iteration};
}

/// Returns the digest of all entries of a buffer; their order does not matter.
uint64_t RemoteLedger::all(exe::BufferId buffer, const Buffer& contents) const {
  uint64_t sum = contents.others;
  for (const auto& [entry, content] : contents.entries)
    sum += mix(first(buffer, entry), seen(content));
  return sum;
}

void RemoteLedger::add(exe::DeviceId device, exe::BufferId buffer, uint64_t found) {
  const auto running = progress_.loops.find(device);
  if (running != progress_.loops.end() && !running->second.empty()) {
    running->second.back().sums[buffer].open += found;
    return;
  }
  int64_t& sum = progress_.moved[buffer].found;
  sum = static_cast<int64_t>(static_cast<uint64_t>(sum) + found);
}

void RemoteLedger::move(const exe::Issue& issue, exe::DeviceId device, std::optional<int64_t> entry,
                        Activation by) {
  Buffer& buffer = contents_[issue.buffer()];
  exe::RemoteTrace& moved = progress_.moved[issue.buffer()];
  const uint64_t transfer = mix(by, static_cast<uint64_t>(issue.token));
  if (issue.kind == exe::TransferKind::kRemoteLoad) {
    ++moved.loads;
    const uint64_t found =
        entry ? seen(at(issue.buffer(), buffer, *entry)) : mix(3, all(issue.buffer(), buffer));
    // A sum, so that the order of loads does not matter.
    return add(device, issue.buffer(), mix(transfer, found));
  }
  ++moved.stores;
  if (entry) {
    buffer.entries[*entry] = set_now(transfer, device);
    return;
  }
  for (auto& [other, content] : buffer.entries)
    content = set_now(mix(seen(content), transfer), device);
  buffer.others = mix(buffer.others, transfer);
}

size_t RemoteLedger::begin_long_loop(exe::DeviceId device) {
  progress_.loops[device].emplace_back();
  return progress_.loops[device].size();
}

void RemoteLedger::end_iteration(exe::DeviceId device) {
  Progress::LongLoop& loop = progress_.loops.at(device).back();
  for (auto& [buffer, sum] : loop.sums) sum = {sum.ended * kIteration + sum.open, 0};
  ++loop.iteration;
}

void RemoteLedger::end_long_loop(exe::DeviceId device) {
  std::vector<Progress::LongLoop>& running = progress_.loops.at(device);
  const auto depth = static_cast<int32_t>(running.size());
  // Read the contents while the loop runs. Then they count as set by what runs around it.
  std::vector<std::pair<EntryState*, uint64_t>> set;
  for (auto& [number, buffer] : contents_) {
    for (auto& [entry, content] : buffer.entries) {
      if (content.device == device && content.depth == depth)
        set.emplace_back(&content, seen(content));
    }
  }
  const Progress::LongLoop ended = std::move(running.back());
  running.pop_back();
  for (const auto& [content, digest] : set) *content = set_now(digest, device);
  for (const auto& [buffer, sum] : ended.sums) add(device, buffer, sum.ended);
}

void RemoteLedger::join(const Contents& then, exe::DeviceId device) {
  std::set<exe::BufferId> of_either;
  for (const auto* one : {&then, &std::as_const(contents_)}) {
    for (const auto& [number, buffer] : *one) of_either.insert(number);
  }
  join(then, of_either, device);
}

void RemoteLedger::join(const Contents& before, const std::set<exe::BufferId>& buffers,
                        exe::DeviceId device) {
  const auto either = [&](const EntryState& a, const EntryState& b) {
    return a == b ? a : set_now(mix(seen(a), seen(b)), device);
  };
  for (const exe::BufferId number : buffers) {
    const auto known = before.find(number);
    const Buffer left = known == before.end() ? Buffer{} : known->second;
    Buffer& mine = contents_[number];
    Buffer joined;
    for (const auto* one : {&left, static_cast<const Buffer*>(&mine)}) {
      for (const auto& [entry, content] : one->entries)
        joined.entries[entry] = either(at(number, left, entry), at(number, mine, entry));
    }
    joined.others = left.others == mine.others ? mine.others : mix(left.others, mine.others);
    mine = std::move(joined);
  }
}

void RemoteLedger::serialise(std::vector<int64_t>& out) const {
  for (const auto& [number, buffer] : contents_) {
    out.insert(out.end(), {number, static_cast<int64_t>(buffer.others)});
    std::vector<std::pair<int64_t, const EntryState*>> sorted;
    for (const auto& [entry, content] : buffer.entries) sorted.emplace_back(entry, &content);
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [entry, content] : sorted) {
      out.insert(out.end(),
                 {entry, content->device, content->depth, static_cast<int64_t>(content->digest),
                  static_cast<int64_t>(seen(*content))});
    }
    out.push_back(-1);
  }
}

bool RemoteLedger::repeats(const Progress& before, const std::vector<Advance>& advances) const {
  const auto advanced = [&](exe::DeviceId device, size_t depth) {
    return std::any_of(advances.begin(), advances.end(),
                       [&](const Advance& a) { return a.device == device && a.depth == depth; });
  };
  for (const auto& [buffer, trace] : progress_.moved) {
    const auto old = before.moved.find(buffer);
    if ((old == before.moved.end() ? 0 : old->second.found) != trace.found) return false;
  }
  for (const auto& [device, running] : progress_.loops) {
    const auto old = before.loops.find(device);
    if ((old == before.loops.end() ? 0 : old->second.size()) != running.size()) return false;
    for (size_t i = 0; i < running.size(); ++i) {
      for (const auto& [buffer, sum] : running[i].sums) {
        const auto& sums = old->second[i].sums;
        const auto at = sums.find(buffer);
        const Progress::Sum was = at == sums.end() ? Progress::Sum{} : at->second;
        if (was.open != sum.open || (was.ended != sum.ended && !advanced(device, i + 1)))
          return false;
      }
    }
  }
  return true;
}

void RemoteLedger::skip(const Progress& before, const std::vector<Advance>& advances,
                        int64_t periods) {
  for (auto& [buffer, trace] : progress_.moved) {
    const auto old = before.moved.find(buffer);
    if (old == before.moved.end()) continue;  // Not used in the loops, since contents are equal.
    trace.loads += periods * (trace.loads - old->second.loads);
    trace.stores += periods * (trace.stores - old->second.stores);
  }
  // The functions x -> a * x + b, applied n times.
  const auto repeat = [](uint64_t x, uint64_t a, uint64_t b, int64_t n) {
    for (; n > 0; n /= 2) {
      if (n % 2 == 1) x = a * x + b;
      b = a * b + b;
      a *= a;
    }
    return x;
  };
  for (const Advance& advance : advances) {
    if (advance.depth == 0) continue;
    Progress::LongLoop& loop = progress_.loops.at(advance.device)[advance.depth - 1];
    const auto& old = before.loops.at(advance.device)[advance.depth - 1].sums;
    const uint64_t factor = repeat(1, kIteration, 0, advance.iterations);
    for (auto& [buffer, sum] : loop.sums) {
      const auto was = old.find(buffer);
      const uint64_t added = sum.ended - factor * (was == old.end() ? 0 : was->second.ended);
      sum.ended = repeat(sum.ended, factor, added, periods);
    }
    const int64_t skipped = periods * advance.iterations;
    loop.iteration += skipped;
    for (auto& [number, buffer] : contents_) {
      for (auto& [entry, content] : buffer.entries) {
        if (content.device == advance.device &&
            content.depth == static_cast<int32_t>(advance.depth))
          content.iteration += skipped;
      }
    }
  }
}

std::vector<exe::RemoteTrace> RemoteLedger::traces() const {
  std::vector<exe::RemoteTrace> out;
  for (const auto& [number, moved] : progress_.moved) {
    const uint64_t digest = static_cast<uint64_t>(moved.found) + all(number, contents_.at(number));
    out.push_back({number, moved.loads, moved.stores, static_cast<int64_t>(digest >> 1)});
  }
  return out;
}

}  // namespace sluice::check
