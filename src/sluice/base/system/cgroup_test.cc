#include "sluice/base/system/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace sluice::sys {
namespace {

// The files of a system in a folder of their own.
class Cgroups : public testing::Test {
 protected:
  ~Cgroups() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file(root_ + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void expect(int cores, int64_t memory) {
    const CgroupLimits limits = cgroup_limits(root_);
    EXPECT_EQ(limits.cores, cores);
    EXPECT_EQ(limits.memory, memory);
  }

  const std::string root_ = (std::filesystem::path(testing::TempDir()) /
                             testing::UnitTest::GetInstance()->current_test_info()->name())
                                .string();
};

TEST_F(Cgroups, SystemsWithoutThemHaveNoLimit) { expect(0, -1); }

TEST_F(Cgroups, OfVersion2AreBoundedByTheirAncestors) {
  write("/proc/self/cgroup", "0::/user/job/task");
  write("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw");
  write("/sys/fs/cgroup/user/job/task/cpu.max", "max 100000");
  write("/sys/fs/cgroup/user/job/task/memory.max", "4000000");
  expect(0, 4000000);
  write("/sys/fs/cgroup/user/job/cpu.max", "250000 100000");
  write("/sys/fs/cgroup/user/job/memory.max", "max");
  expect(3, 4000000);
  write("/sys/fs/cgroup/user/cpu.max", "800000 100000");
  write("/sys/fs/cgroup/user/memory.max", "3000000");
  expect(3, 3000000);
  write("/sys/fs/cgroup/cpu.max", "50000 100000");  // The root of a container.
  expect(1, 3000000);
}

TEST_F(Cgroups, OfVersion1HaveAHierarchyForEachController) {
  write("/proc/self/cgroup", "4:memory:/a/b\n2:cpu,cpuacct:/c\n1:name=systemd:/d\n0::/");
  write("/proc/self/mountinfo",
        "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory");
  write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "-1");
  write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000");
  write("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712");
  expect(0, -1);
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "123456789");
  write("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "150000");
  expect(2, 123456789);
}

// A container without a namespace of its own sees its full path, but mounts its part alone.
TEST_F(Cgroups, APathOutsideTheMountIsThatOfTheMountPoint) {
  write("/proc/self/cgroup", "0::/docker/abc/inner");
  write("/proc/self/mountinfo",
        "31 23 0:28 /docker/abc /sys/fs/my\\040cgroup rw - cgroup2 cgroup2 rw");
  write("/sys/fs/my cgroup/inner/memory.max", "7000");
  write("/sys/fs/my cgroup/cpu.max", "400000 100000");
  expect(4, 7000);
  write("/proc/self/cgroup", "0::/../other");
  expect(4, -1);
}

TEST_F(Cgroups, MemoryInUseIsNotAvailable) {
  write("/proc/self/cgroup", "0::/");
  write("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
  const auto expect_left = [&](int64_t bytes, AvailableMemory::Limit limit) {
    const AvailableMemory memory = available_memory(root_);
    EXPECT_EQ(memory.bytes, bytes);
    EXPECT_EQ(memory.limit, limit);
  };
  using Limit = AvailableMemory::Limit;
  expect_left(-1, Limit::kMachine);
  write("/sys/fs/cgroup/memory.max", "1000000");
  expect_left(1000000, Limit::kCgroup);
  write("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:     700 kB\nSwapFree: 100 kB");
  expect_left(800 * 1024, Limit::kMachine);
  write("/proc/meminfo", "MemAvailable: 977 kB");
  expect_left(1000000, Limit::kCgroup);
  write("/proc/self/statm", "500 10 5 1 0 3 0");
  EXPECT_LT(available_memory(root_).bytes, 1000000);
  write("/proc/self/statm", "5000000 1000000 5 1 0 3 0");
  expect_left(0, Limit::kCgroup);
}

}  // namespace
}  // namespace sluice::sys
