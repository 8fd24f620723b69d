#include "plan_run.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "sluice/base/rng.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/runtime/executor.h"

namespace sluice::property {
namespace {

/// Draws floats in [0, 1) and integers from 0 to 2.
std::vector<std::byte> elements(const TensorSpec& spec, int64_t count, Seed key) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * spec.bytes()));
  const auto size = static_cast<size_t>(size_of(spec.dtype));
  for (size_t i = 0; i * size < bytes.size(); ++i) {
    const float unit = random_unit(key, i);
    const auto integer = static_cast<int32_t>(unit * 3);
    if (spec.dtype == f32) {
      std::memcpy(&bytes[i * size], &unit, size);
    } else if (size == sizeof integer) {
      std::memcpy(&bytes[i * size], &integer, size);
    } else {
      bytes[i * size] = static_cast<std::byte>(unit < 0.5f);
    }
  }
  return bytes;
}

class PlanRun {
 public:
  PlanRun(const exe::Executable& e, uint64_t seed)
      : seed_(seed),
        executor_(e, std::vector<std::shared_ptr<runtime::Device>>(e.devices.size(), device_),
                  options(e)) {}

  RunBytes run() {
    const exe::Executable& e = executor_.executable();
    for (int r = 0; r < e.replicas; ++r) fill(r);
    for (const exe::Program& p : e.programs) run(p);
    for (int r = 0; r < e.replicas; ++r) {
      for (size_t v = 0; v < e.variables.size(); ++v) read(v, r);
    }
    return std::move(seen_);
  }

 private:
  static runtime::ExecutorOptions options(const exe::Executable& e) {
    runtime::ExecutorOptions o{.threads =
                                   e.devices.empty() ? 1 : e.devices[exe::DeviceId(0)].workers};
    o.folder = std::filesystem::temp_directory_path().string();
    return o;
  }
  runtime::OpenDevice& device(int32_t arena, int replica) const {
    return executor_.device(executor_.executable().arenas[exe::ArenaId(arena)].device, replica);
  }
  Seed key(uint32_t what, size_t index) const {
    return {what * 65536 + static_cast<uint32_t>(index), static_cast<uint32_t>(seed_)};
  }

  void fill(int replica) {
    const exe::Executable& e = executor_.executable();
    for (const exe::ConstantPlan& c : e.constants) {
      if (!c.data.empty())
        device(c.arena, replica)
            .write(executor_.arena(c.arena, replica) + c.offset, c.spec, "row", 0, c.data);
    }
    for (size_t v = 0; v < e.variables.size(); ++v) {
      const exe::VariablePlan& plan = e.variables[exe::VariableId(v)];
      const TensorSpec spec{plan.spec.shape, plan.spec.dtype, {}};
      const auto values = elements(spec, 1, key(1, v));
      if (plan.buffer >= 0) {
        executor_.remote(replica).write(plan.buffer, plan.entry, 0, values);
      } else {
        device(plan.arena, replica)
            .write(executor_.arena(plan.arena, replica) + plan.offset, spec, plan.layout, 0,
                   values);
      }
    }
  }

  void run(const exe::Program& p) {
    const exe::Executable& e = executor_.executable();
    runtime::HostStreams streams(e);
    std::vector<std::vector<std::byte>> arrays;
    for (const exe::StreamCount& s : p.streams) {
      const exe::StreamPort& port = e.streams[s.stream];
      arrays.push_back(elements(port.spec, port.input ? s.entries * e.replicas : 0,
                                key(2, static_cast<size_t>(s.stream))));
      arrays.back().resize(static_cast<size_t>(s.entries * e.replicas * port.spec.bytes()));
      streams.bind(s.stream, arrays.back().data());
    }
    executor_.run_interleaved(p, streams, seed_);
    for (size_t i = 0; i < arrays.size(); ++i) {
      const int32_t s = p.streams[i].stream;
      if (!e.streams[exe::StreamId(s)].input)
        seen_[p.name + " stream " + std::to_string(s)] = std::move(arrays[i]);
    }
  }

  void read(size_t v, int replica) {
    const exe::VariablePlan& plan = executor_.executable().variables[exe::VariableId(v)];
    const TensorSpec spec{plan.spec.shape, plan.spec.dtype, {}};
    std::vector<std::byte> values(static_cast<size_t>(spec.bytes()));
    if (plan.buffer >= 0) {
      executor_.remote(replica).read(plan.buffer, plan.entry, 0, values);
    } else {
      device(plan.arena, replica)
          .read(executor_.arena(plan.arena, replica) + plan.offset, spec, plan.layout, 0, values);
    }
    seen_[plan.path + " of replica " + std::to_string(replica)] = std::move(values);
  }

  uint64_t seed_;
  const std::shared_ptr<runtime::Device> device_ = cpu::make_device();
  runtime::Executor executor_;
  RunBytes seen_;
};

}  // namespace

RunBytes run_plan(const exe::Executable& executable, uint64_t seed) {
  return PlanRun(executable, seed).run();
}

Comparison plan_runs(const exe::Executable& right) {
  return [first = run_plan(right, 0), second = run_plan(right, 1)](const exe::Executable& other) {
    try {
      const bool equal = run_plan(other, 0) == first && run_plan(other, 1) == second;
      return std::string(equal ? "" : "the run has other bits");
    } catch (const Error& e) {
      return std::string("the run fails: ") + e.what();
    }
  };
}

}  // namespace sluice::property
