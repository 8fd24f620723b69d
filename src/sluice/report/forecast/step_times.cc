#include "sluice/report/forecast/step_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "sluice/report/traffic.h"

namespace sluice::report {

int64_t moved_bytes(const std::vector<exe::Operand>& operands) {
  int64_t bytes = 0;
  for (const exe::Operand& o : operands)
    bytes = bounded_sum(bytes, bounded_product(o.bytes, o.access == exe::Access::kUpdate ? 2 : 1));
  return bytes;
}

namespace {

const std::vector<exe::Operand>& operands_of(const exe::Step& step) {
  static const std::vector<exe::Operand> none;
  if (const auto* k = std::get_if<exe::Kernel>(&step.body)) return k->operands;
  if (const auto* c = std::get_if<exe::Collective>(&step.body)) return c->operands;
  return none;
}

/// The order in which a function touches memory.
class Touches {
 public:
  /// Records a touch of an operand. Returns the bytes touched since the operand's previous touch,
  /// its own bytes included; infinity at its first touch.
  double touch(const exe::Operand& o) {
    const auto [at, first] = last_.try_emplace({o.at.base, o.at.index, o.at.offset}, touched_);
    const double since = first ? HUGE_VAL : touched_ - at->second;
    at->second = touched_;
    touched_ += static_cast<double>(o.bytes);
    return since;
  }

 private:
  std::map<std::tuple<exe::Address::Base, int32_t, int64_t>, double> last_;
  double touched_ = 0;
};

/// Returns the seconds that one worker needs to move the operands of each step. A function runs
/// repeatedly, so memory that its last steps touched may still be in a cache at its first step.
std::vector<double> moving_seconds(const exe::Function& function, const Rates& rates) {
  Touches touches;
  std::vector<double> seconds;
  for (int run = 0; run < 2; ++run) {
    seconds.clear();
    for (const exe::Step& step : function.steps) {
      double sum = 0;
      for (const exe::Operand& o : operands_of(step)) {
        const double accesses = o.access == exe::Access::kUpdate ? 2 : 1;
        sum += accesses * static_cast<double>(o.bytes) / (2 * rates.copies_of(touches.touch(o)));
      }
      seconds.push_back(sum);
    }
  }
  return seconds;
}

}  // namespace

StepTimes::StepTimes(const exe::Executable& executable, const Rates& rates)
    : e_(executable), rates_(rates), seconds_(executable.functions.size()) {
  if (rates.cluster)
    links_.emplace(rates, executable.replicas, static_cast<int>(executable.devices.size()));
  for (const exe::FunctionId f : e_.functions.ids()) {
    const exe::Function& function = e_.functions[f];
    const std::vector<double> moving = moving_seconds(function, rates);
    for (size_t i = 0; i < function.steps.size(); ++i)
      seconds_[f].push_back(seconds_of(function.steps[i], moving[i], function.device));
  }
}

int StepTimes::memory_of(exe::TransferKind kind, int32_t object) const {
  if (kind == exe::TransferKind::kStreamIn || kind == exe::TransferKind::kStreamOut) return 0;
  const exe::RemoteBufferPlan& b = e_.remote_buffers[exe::BufferId(object)];
  const exe::Space space = e_.arenas[b.arena].space;
  for (size_t t = 0; t < e_.tiers.size(); ++t) {
    if (e_.tiers[t].space == space) return static_cast<int>(t) + 1;
  }
  return 0;
}

std::string StepTimes::name_of_memory(int memory) const {
  return memory == 0 ? "streams" : "tier " + at(e_.tiers, memory - 1).name;
}

// The number of replicas that one worker runs one after another.
double StepTimes::rounds_of_replicas(const exe::Device& device) const {
  if (rates_.cluster) return 1;
  const int teams = std::max(1, rates_.threads / std::max(1, device.workers));
  return std::ceil(static_cast<double>(e_.replicas) / teams);
}

double StepTimes::seconds_of(const exe::Step& step, double moving, exe::DeviceId id) const {
  const exe::Device& device = e_.devices[id];
  const auto shared = [&](double seconds, int64_t parts) {
    const auto workers = static_cast<double>(std::clamp<int64_t>(parts, 1, device.workers));
    return seconds * rounds_of_replicas(device) / (workers > 1 ? workers * rates_.together : 1);
  };
  const auto copied = [&](int64_t bytes) { return static_cast<double>(bytes) / rates_.copies; };
  if (const auto* k = std::get_if<exe::Kernel>(&step.body)) {
    const auto flops = static_cast<double>(k->flops);
    const auto bytes = static_cast<double>(std::max<int64_t>(moved_bytes(k->operands), 1));
    const double rate = rates_.flops_of(kernel_class(*k), flops / bytes);
    const double seconds =
        rate > 0 ? flops / rate + moving : std::max(flops / rates_.flops, moving);
    return shared(seconds, k->tasks) + rates_.kernel_begin * rounds_of_replicas(device);
  }
  if (const auto* c = std::get_if<exe::Collective>(&step.body)) {
    return shared(moving, device.workers) +
           (links_ ? links_->collective_seconds(id, e_.groups[c->group], *c) : 0);
  }
  if (const auto* s = std::get_if<exe::Send>(&step.body))
    return shared(copied(s->operand.bytes), 1);
  if (const auto* r = std::get_if<exe::Receive>(&step.body))
    return shared(copied(r->operand.bytes), 1);
  if (const auto* i = std::get_if<exe::Issue>(&step.body)) {
    return memory_of(i->kind, i->object) == 0
               ? shared(copied(i->memory.bytes), 1)
               : static_cast<double>(i->memory.bytes) * (rates_.cluster ? 1 : e_.replicas) /
                     rates_.remote;
  }
  return 0;
}

}  // namespace sluice::report
