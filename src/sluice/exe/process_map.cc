#include "sluice/exe/process_map.h"

#include <algorithm>
#include <utility>

#include "sluice/base/error.h"

namespace sluice::exe {
namespace {

std::string what_is_shared(int replicas, int devices) {
  if (devices == 1) return fmt::format("{} replicas", replicas);
  if (replicas == 1) return fmt::format("{} devices", devices);
  return fmt::format("{} devices of each of {} replicas", devices, replicas);
}

void require_even(int replicas, int devices, int processes) {
  require(processes >= 1 && replicas * devices % processes == 0,
          "{} processes cannot share {} evenly", processes, what_is_shared(replicas, devices));
}

// Extends a range by a replica, which must be its last one or the next.
void extend(ReplicaRange& range, int replica, int process, const std::string& what) {
  if (range.count == 0) range.first = replica;
  if (range.count > 0 && replica == range.first + range.count - 1) return;
  require(
      replica == range.first + range.count,
      "map of processes: process {} must run {} of consecutive replicas, got replicas {} and {}",
      process, what, range.first + range.count - 1, replica);
  ++range.count;
}

}  // namespace

ProcessMap::ProcessMap(int replicas, int devices, int processes, std::vector<int> listed)
    : devices_(devices),
      listed_(std::move(listed)),
      replicas_of_(static_cast<size_t>(std::max(processes, 1)), {0, 0}) {
  const int all = replicas * devices;
  if (listed_.empty()) {
    require_even(replicas, devices, processes);
    for (int i = 0; i < all; ++i) listed_.push_back(i / (all / processes));
  }
  require(static_cast<int>(listed_.size()) == all,
          "map of processes: must have {} numbers, one for each of {}, got {}", all,
          what_is_shared(replicas, devices), listed_.size());
  std::vector<ReplicaRange> of_one(replicas_of_.size() * static_cast<size_t>(devices), {0, 0});
  for (int i = 0; i < all; ++i) {
    const int process = at(listed_, i);
    require(process >= 0 && process < processes,
            "map of processes: each number must be in [0, {}), got {}", processes, process);
    const int device = i % devices;
    extend(at(replicas_of_, process), i / devices, process, "devices");
    extend(at(of_one, process * devices + device), i / devices, process,
           fmt::format("device {}", device));
  }
  for (int p = 0; p < processes; ++p) {
    const int count = replicas_of(p).count;
    require(count > 0, "map of processes: process {} must run a device, got none", p);
    require(count == replicas_each(),
            "map of processes: all processes must run equally many replicas, got {} in process 0 "
            "and {} in process {}",
            replicas_each(), count, p);
  }
}

std::vector<int> ProcessMap::devices_first(int replicas, int devices, int processes) {
  require_even(replicas, devices, processes);
  std::vector<int> listed;
  for (int r = 0; r < replicas; ++r) {
    for (int d = 0; d < devices; ++d)
      listed.push_back((d * replicas + r) / (replicas * devices / processes));
  }
  return listed;
}

}  // namespace sluice::exe
