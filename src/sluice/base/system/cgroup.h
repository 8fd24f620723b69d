#pragma once
#include <cstdint>
#include <string>

namespace sluice::sys {

/// Limits that control groups set to this process.
struct CgroupLimits {
  int cores = 0;        ///< Quota of processor time in cores, rounded up; 0: no quota.
  int64_t memory = -1;  ///< Bytes of memory; -1: no limit.
};

/// Returns the folder that SLUICE_SYSTEM_ROOT names, for tests; empty without it.
std::string system_root();

/// Reads the limits of the process's cgroups, of version 1 and 2. A cgroup is bounded by those
/// around it too, so each limit is the minimum over the cgroup and its ancestors. Files that are
/// missing or unreadable set no limit.
///
/// `root` precedes the paths of all files: "/proc/self/cgroup", "/proc/self/mountinfo", and those
/// below the mounts.
CgroupLimits cgroup_limits(const std::string& root = system_root());

/// Memory that this process can still allocate.
struct AvailableMemory {
  int64_t bytes = -1;  ///< -1: not known.
  enum class Limit : uint8_t { kMachine, kCgroup } limit = Limit::kMachine;
};

/// Returns the smaller of two amounts: what the cgroups leave to this process, which is their
/// memory limit less the bytes that the process has in memory (/proc/self/statm), at least 0; and
/// what the machine has, MemAvailable and SwapFree of /proc/meminfo. Files that are missing or
/// unreadable set no limit.
AvailableMemory available_memory(const std::string& root = system_root());

}  // namespace sluice::sys
