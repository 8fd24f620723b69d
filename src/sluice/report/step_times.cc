#include "sluice/report/step_times.h"

#include <algorithm>
#include <cmath>

#include "sluice/report/traffic.h"

namespace sluice::report {

int64_t moved_bytes(const std::vector<exe::Operand>& operands) {
  int64_t bytes = 0;
  for (const exe::Operand& o : operands)
    bytes = bounded_sum(bytes, bounded_product(o.bytes, o.access == exe::Access::kUpdate ? 2 : 1));
  return bytes;
}

StepTimes::StepTimes(const exe::Executable& executable, const Rates& rates)
    : e_(executable), rates_(rates), seconds_(executable.functions.size()) {
  for (size_t f = 0; f < e_.functions.size(); ++f) {
    for (const exe::Step& s : e_.functions[f].steps)
      seconds_[f].push_back(seconds_of(s, e_.devices[static_cast<size_t>(e_.functions[f].device)]));
  }
}

int StepTimes::memory_of(exe::TransferKind kind, int32_t object) const {
  if (kind == exe::TransferKind::kStreamIn || kind == exe::TransferKind::kStreamOut) return 0;
  const exe::RemoteBufferPlan& b = e_.remote_buffers[static_cast<size_t>(object)];
  const exe::Space space = e_.arenas[static_cast<size_t>(b.arena)].space;
  for (size_t t = 0; t < e_.tiers.size(); ++t) {
    if (e_.tiers[t].space == space) return static_cast<int>(t) + 1;
  }
  return 0;
}

std::string StepTimes::name_of_memory(int memory) const {
  return memory == 0 ? "streams" : "tier " + e_.tiers[static_cast<size_t>(memory) - 1].name;
}

// The number of replicas that one worker runs in turn.
double StepTimes::turns(const exe::Device& device) const {
  const int teams = std::max(1, rates_.threads / std::max(1, device.workers));
  return std::ceil(static_cast<double>(e_.replicas) / teams);
}

double StepTimes::seconds_of(const exe::Step& step, const exe::Device& device) const {
  const auto shared = [&](double seconds, int64_t parts) {
    return seconds * turns(device) /
           static_cast<double>(std::clamp<int64_t>(parts, 1, device.workers));
  };
  const auto copied = [&](int64_t bytes) { return static_cast<double>(bytes) / rates_.copies; };
  if (const auto* k = std::get_if<exe::Kernel>(&step.body)) {
    const double computing = static_cast<double>(k->flops) / rates_.flops;
    return shared(std::max(computing, copied(moved_bytes(k->operands)) / 2), k->tasks);
  }
  if (const auto* c = std::get_if<exe::Collective>(&step.body))
    return shared(copied(moved_bytes(c->operands)) / 2, device.workers);
  if (const auto* s = std::get_if<exe::Send>(&step.body))
    return shared(copied(s->operand.bytes), 1);
  if (const auto* r = std::get_if<exe::Receive>(&step.body))
    return shared(copied(r->operand.bytes), 1);
  if (const auto* i = std::get_if<exe::Issue>(&step.body)) {
    return memory_of(i->kind, i->object) == 0
               ? shared(copied(i->memory.bytes), 1)
               : static_cast<double>(i->memory.bytes) * e_.replicas / rates_.remote;
  }
  return 0;
}

}  // namespace sluice::report
