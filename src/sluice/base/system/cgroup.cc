#include "sluice/base/system/cgroup.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace sluice::sys {
namespace {

// Version 1 writes a number close to 2^63 for "no limit".
constexpr int64_t kNoMemoryLimit = int64_t{1} << 60;

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Whether `list`, with commas between its items, has the item.
bool has_item(const std::string& list, std::string_view item) {
  std::istringstream in(list);
  for (std::string each; std::getline(in, each, ',');) {
    if (each == item) return true;
  }
  return false;
}

// Replaces the escapes of mountinfo: "\040" is a space.
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// A hierarchy of cgroups that is mounted. `top` is the cgroup at the mount point.
struct Mount {
  bool is_v2 = false;
  std::string controllers;
  std::string top;
  std::string point;
};

std::vector<Mount> mounts_of(const std::string& root) {
  std::vector<Mount> mounts;
  for (const std::string& line : lines_of(root + "/proc/self/mountinfo")) {
    const std::vector<std::string> words = words_of(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (dash - words.begin() < 6 || words.end() - dash < 4) continue;
    if (dash[1] != "cgroup" && dash[1] != "cgroup2") continue;
    mounts.push_back({dash[1] == "cgroup2", dash[3], unescaped(words[3]), unescaped(words[4])});
  }
  return mounts;
}

// Returns the folders of the process's cgroup and of its ancestors, the cgroup first.
std::vector<std::string> folders_of(const std::string& root, const Mount& mount,
                                    const std::string& cgroup) {
  // Without a common namespace, the mount may show another part of the hierarchy.
  std::string below = cgroup;
  if (mount.top != "/")
    below = cgroup.starts_with(mount.top) ? cgroup.substr(mount.top.size()) : std::string();
  std::vector<std::string> folders;
  for (; below.size() > 1; below.resize(below.rfind('/')))
    folders.push_back(root + mount.point + below);
  folders.push_back(root + mount.point);
  return folders;
}

// Returns the first numbers of a file. A word such as "max" ends them.
std::vector<int64_t> numbers_of(const std::string& path) {
  std::vector<int64_t> numbers;
  std::ifstream file(path);
  for (int64_t number = 0; file >> number;) numbers.push_back(number);
  return numbers;
}

void bound_cores(CgroupLimits& limits, const std::vector<int64_t>& quota_and_period) {
  if (quota_and_period.size() < 2 || quota_and_period[0] <= 0 || quota_and_period[1] <= 0) return;
  const int64_t quota = quota_and_period[0], period = quota_and_period[1];
  const auto cores =
      static_cast<int>(std::min<int64_t>(quota / period + (quota % period != 0), 1 << 20));
  limits.cores = limits.cores == 0 ? cores : std::min(limits.cores, cores);
}

void bound_memory(CgroupLimits& limits, const std::vector<int64_t>& bytes) {
  if (bytes.empty() || bytes[0] < 0 || bytes[0] >= kNoMemoryLimit) return;
  limits.memory = limits.memory < 0 ? bytes[0] : std::min(limits.memory, bytes[0]);
}

// Returns MemAvailable and SwapFree of /proc/meminfo in bytes; -1 without MemAvailable.
int64_t machine_memory(const std::string& root) {
  int64_t available = -1, swap = 0;
  for (const std::string& line : lines_of(root + "/proc/meminfo")) {
    const std::vector<std::string> words = words_of(line);  // "MemAvailable:   22368460 kB".
    if (words.size() < 2) continue;
    int64_t* const bytes = words[0] == "MemAvailable:" ? &available
                           : words[0] == "SwapFree:"   ? &swap
                                                       : nullptr;
    if (bytes != nullptr) *bytes = std::strtoll(words[1].c_str(), nullptr, 10) * 1024;
  }
  return available < 0 ? -1 : available + swap;
}

void bound(CgroupLimits& limits, const Mount& mount, const std::string& folder) {
  if (mount.is_v2) {
    bound_cores(limits, numbers_of(folder + "/cpu.max"));
    bound_memory(limits, numbers_of(folder + "/memory.max"));
    return;
  }
  if (has_item(mount.controllers, "cpu")) {
    std::vector<int64_t> quota = numbers_of(folder + "/cpu.cfs_quota_us");
    for (const int64_t period : numbers_of(folder + "/cpu.cfs_period_us")) quota.push_back(period);
    bound_cores(limits, quota);
  }
  if (has_item(mount.controllers, "memory"))
    bound_memory(limits, numbers_of(folder + "/memory.limit_in_bytes"));
}

}  // namespace

std::string system_root() {
  const char* const root = std::getenv("SLUICE_SYSTEM_ROOT");
  return root == nullptr ? std::string() : std::string(root);
}

CgroupLimits cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  const std::vector<Mount> mounts = mounts_of(root);
  for (const std::string& line : lines_of(root + "/proc/self/cgroup")) {
    // "4:cpu,cpuacct:/path"; version 2 has the line "0::/path".
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string cgroup = line.substr(second + 1);
    for (const Mount& mount : mounts) {
      const bool is_its =
          mount.is_v2
              ? controllers.empty()
              : (has_item(controllers, "cpu") && has_item(mount.controllers, "cpu")) ||
                    (has_item(controllers, "memory") && has_item(mount.controllers, "memory"));
      if (!is_its) continue;
      for (const std::string& folder : folders_of(root, mount, cgroup))
        bound(limits, mount, folder);
    }
  }
  return limits;
}

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory memory{.bytes = machine_memory(root)};
  const int64_t limit = cgroup_limits(root).memory;
  if (limit < 0) return memory;
  const std::vector<int64_t> pages = numbers_of(root + "/proc/self/statm");
  const int64_t resident = pages.size() < 2 ? 0 : pages[1] * ::sysconf(_SC_PAGESIZE);
  const int64_t left = std::max<int64_t>(limit - resident, 0);
  if (memory.bytes < 0 || left < memory.bytes) memory = {left, AvailableMemory::Limit::kCgroup};
  return memory;
}

}  // namespace sluice::sys
