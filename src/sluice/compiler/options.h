#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/target/target.h"

namespace sluice {

/// A device to compile for.
struct DeviceSpec {
  std::shared_ptr<const Target> target;
  int64_t memory = -1;  ///< Memory budget in bytes; -1: unlimited.
  int threads = 1;      ///< Worker threads of the pool that runs the replicas of a process.
};

struct CompileOptions {
  std::vector<DeviceSpec> devices;
  exe::Space remote_space = exe::Space::kHost;  ///< Tier of remote buffers: kHost or kFile.
  int64_t remote_memory = -1;                   ///< Budget of that tier in bytes; -1: unlimited.
  int processes = 1;           ///< Number of processes that share the devices of all replicas.
  std::vector<int> map;        ///< Argument of exe::ProcessMap: which device is in which process.
  bool remote_direct = false;  ///< Access files without the page cache, through staging memory.
  bool verify_remote = false;  ///< Verify the checksums of all bytes that are read from a file.
  /// Queues of a device for transfers concurrent with its computation: 0, 1, or 3 (loads, stores,
  /// prefetches).
  int io_queues = 1;
  std::vector<std::string> disable;  ///< Names of optional passes to skip.
  std::string print_after;           ///< Name of a pass, or "all": print its result to stderr.
  bool verify = false;  ///< Verify all bodies after every pass; debug builds always do.
};

/// Counts the kernels that the pass "fuse" made, and the pairs of ops that it did not join.
struct FusionReport {
  std::map<std::string, int64_t> made;     ///< Count by kernel: "MatMul+Add+Gelu".
  std::map<std::string, int64_t> refused;  ///< Count by reason: "Softmax after MatMul+Add: …".
};

}  // namespace sluice
