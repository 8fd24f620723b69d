#include "sluice/check/simulation/ledger.h"

#include "sluice/base/hash.h"

namespace sluice::check {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15U)) * 0xbf58476d1ce4e5b9U;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebU;
  return x ^ (x >> 32);
}

}  // namespace

RemoteLedger::RemoteLedger(const exe::Executable& executable) {
  for (const exe::VariablePlan& v : executable.variables) {
    if (v.buffer >= 0) homes_[{v.buffer, v.entry}] = hash64(v.path);
  }
}

/// Returns the digest of an entry to which the run has not stored.
uint64_t RemoteLedger::first(int32_t buffer, int64_t entry) const {
  const auto home = homes_.find({buffer, entry});
  return home == homes_.end() ? mix(1, static_cast<uint64_t>(entry)) : home->second;
}

RemoteLedger::Activation RemoteLedger::entry(int32_t device) {
  return mix(2, static_cast<uint64_t>(device));
}

RemoteLedger::Activation RemoteLedger::callee(Activation caller, int64_t call, int64_t iteration) {
  return mix(mix(caller, static_cast<uint64_t>(call)), static_cast<uint64_t>(iteration));
}

uint64_t RemoteLedger::at(int32_t buffer, const Buffer& contents, int64_t entry) const {
  const auto named = contents.entries.find(entry);
  if (named != contents.entries.end()) return named->second;
  return contents.others == 0 ? first(buffer, entry) : mix(first(buffer, entry), contents.others);
}

/// Returns the digest of all entries of a buffer; their order does not matter.
uint64_t RemoteLedger::all(int32_t buffer, const Buffer& contents) const {
  uint64_t sum = contents.others;
  for (const auto& [entry, content] : contents.entries) sum += mix(first(buffer, entry), content);
  return sum;
}

void RemoteLedger::move(const exe::Issue& issue, std::optional<int64_t> entry, Activation by) {
  Buffer& buffer = contents_[issue.object];
  exe::RemoteTrace& moved = moved_[issue.object];
  const uint64_t transfer = mix(by, static_cast<uint64_t>(issue.token));
  if (issue.kind == exe::TransferKind::kRemoteLoad) {
    ++moved.loads;
    const uint64_t found =
        entry ? at(issue.object, buffer, *entry) : mix(3, all(issue.object, buffer));
    // A sum, so that the order of loads does not matter.
    moved.found = static_cast<int64_t>(static_cast<uint64_t>(moved.found) + mix(transfer, found));
    return;
  }
  ++moved.stores;
  if (entry) {
    buffer.entries[*entry] = transfer;
    return;
  }
  for (auto& [other, content] : buffer.entries) content = mix(content, transfer);
  buffer.others = mix(buffer.others, transfer);
}

void RemoteLedger::join(const Contents& then) {
  std::set<int32_t> of_either;
  for (const auto* one : {&then, &std::as_const(contents_)}) {
    for (const auto& [number, buffer] : *one) of_either.insert(number);
  }
  join(then, of_either);
}

void RemoteLedger::join(const Contents& before, const std::set<int32_t>& buffers) {
  for (const int32_t number : buffers) {
    const auto known = before.find(number);
    const Buffer left = known == before.end() ? Buffer{} : known->second;
    Buffer& mine = contents_[number];
    Buffer joined;
    const auto either = [](uint64_t a, uint64_t b) { return a == b ? a : mix(a, b); };
    for (const auto* one : {&left, static_cast<const Buffer*>(&mine)}) {
      for (const auto& [entry, content] : one->entries)
        joined.entries[entry] = either(at(number, left, entry), at(number, mine, entry));
    }
    joined.others = either(left.others, mine.others);
    mine = std::move(joined);
  }
}

std::vector<exe::RemoteTrace> RemoteLedger::traces() const {
  std::vector<exe::RemoteTrace> out;
  for (const auto& [number, moved] : moved_) {
    const uint64_t digest = static_cast<uint64_t>(moved.found) + all(number, contents_.at(number));
    out.push_back({number, moved.loads, moved.stores, static_cast<int64_t>(digest >> 1)});
  }
  return out;
}

}  // namespace sluice::check
