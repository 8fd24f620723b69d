// The part of Executor that compares a plan with the memory of this machine, before it allocates.

#include <fmt/format.h>

#include <utility>

#include "sluice/base/checked.h"
#include "sluice/exe/budget/does_not_fit.h"
#include "sluice/runtime/executor.h"
#include "sluice/runtime/queue.h"

namespace sluice::runtime {
namespace {

exe::MemoryNeeds machine_needs(std::string name, exe::DeviceId device, int64_t needed,
                               int64_t available) {
  exe::MemoryNeeds needs{.name = std::move(name), .device = device};
  needs.total_bytes = needed;
  needs.budget_bytes = available;
  return needs;
}

}  // namespace

// The system would end a process beyond its limit without a message, once it touches the memory.
void Executor::check_host_memory() const {
  const int64_t available = options_.host_memory.bytes;
  if (available < 0) return;
  const exe::ReplicaRange here = placement_.here();
  int64_t devices = 0, host = 0;
  for (int r = 0; r < here.count; ++r) {
    for (const exe::ArenaId a : executable_.arenas.ids()) {
      const exe::Arena& arena = executable_.arenas[a];
      const bool on_device = arena.space == exe::Space::kDevice;
      if (arena.space == exe::Space::kFile ||
          (on_device && executable_.devices[arena.device].queued))
        continue;
      int64_t& sum = on_device ? devices : host;
      sum = checked_add(sum, placement_.bytes_of(here.first + r, a));
    }
  }
  const int64_t needed = checked_add(devices, host);
  if (needed <= available) return;
  const bool cgroup = options_.host_memory.limit == sys::AvailableMemory::Limit::kCgroup;
  throw DoesNotFit(
      fmt::format("memory: must be at most {} bytes, which {}, got {}: {} of devices and {} of the "
                  "host; use a smaller micro-batch, remote memory in \"file:FOLDER\", or {}",
                  available,
                  cgroup ? "the control group leaves to this process" : "the machine has available",
                  needed, devices, host, cgroup ? "a higher limit" : "a machine with more memory"),
      machine_needs("host memory", exe::DeviceId(), needed, available));
}

// A device would refuse one of several allocations, after those before it.
void Executor::check_device_memory() const {
  for (int r = 0; r < placement_.here().count; ++r) {
    const int number = placement_.here().first + r;
    Ids<exe::DeviceId, int64_t> needed(devices_.size());
    for (const exe::ArenaId a : executable_.arenas.ids()) {
      if (executable_.arenas[a].space != exe::Space::kDevice) continue;
      const exe::DeviceId owner = owner_of(number, a);
      if (!owner.valid()) continue;
      needed[owner] = checked_add(needed[owner], placement_.bytes_of(number, a));
    }
    for (const exe::DeviceId d : devices_.ids()) {
      const auto* const device = dynamic_cast<QueuedDevice*>(at(replicas_, r)->devices[d].get());
      const int64_t available = device == nullptr ? -1 : device->available_memory();
      if (available < 0 || needed[d] <= available) continue;
      const std::string name = fmt::format("device {} ({})", d, executable_.devices[d].kind);
      throw DoesNotFit(
          fmt::format("{}: memory must be at most {} bytes, which the device has available, got "
                      "{}; use a smaller micro-batch, or offload tensors under a budget of that "
                      "size",
                      name, available, needed[d]),
          machine_needs(name, d, needed[d], available));
    }
  }
}

// Returns the device whose memory has an arena of device memory here; invalid if there is none. The
// slots of a channel to another process are in memory of the device that sends.
exe::DeviceId Executor::owner_of(int replica, exe::ArenaId arena) const {
  const exe::DeviceId device = executable_.arenas[arena].device;
  if (placement_.has(replica, device)) return device;
  for (const exe::Channel& c : executable_.channels) {
    if (c.arena == arena && placement_.has(replica, c.from)) return c.from;
  }
  return {};
}

}  // namespace sluice::runtime
