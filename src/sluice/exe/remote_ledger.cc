#include "sluice/exe/remote_ledger.h"

#include "sluice/base/hash.h"

namespace sluice::exe {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15U)) * 0xbf58476d1ce4e5b9U;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebU;
  return x ^ (x >> 32);
}

}  // namespace

RemoteLedger::RemoteLedger(const Executable& executable) {
  for (const VariablePlan& v : executable.variables) {
    if (v.buffer >= 0) homes_[{v.buffer, v.entry}] = hash64(v.path);
  }
}

/// What an entry holds that the run has not stored to.
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

void RemoteLedger::move(const Issue& issue, int64_t entry, Activation by) {
  Buffer& b = buffers_[issue.object];
  const uint64_t transfer = mix(by, static_cast<uint64_t>(issue.token));
  if (issue.kind == TransferKind::kRemoteStore) {
    ++b.stores;
    b.entries[entry] = transfer;
    return;
  }
  ++b.loads;
  const auto there = b.entries.find(entry);
  // A sum: loads that find the same come in any order.
  b.found += mix(transfer, there == b.entries.end() ? first(issue.object, entry) : there->second);
}

std::vector<RemoteTrace> RemoteLedger::traces() const {
  std::vector<RemoteTrace> out;
  for (const auto& [buffer, b] : buffers_) {
    if (is_open(buffer)) continue;
    uint64_t found = b.found;
    for (const auto& [entry, last] : b.entries) found += mix(first(buffer, entry), last);
    out.push_back({buffer, b.loads, b.stores, static_cast<int64_t>(found >> 1)});
  }
  return out;
}

}  // namespace sluice::exe
