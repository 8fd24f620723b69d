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
  int64_t memory = -1;  ///< Budget in bytes; -1: none.
  int threads = 1;      ///< Workers of the pool that runs the replicas of a process.
};

struct CompileOptions {
  std::vector<DeviceSpec> devices;
  exe::Space remote_space = exe::Space::kHost;  ///< Tier of remote buffers: kHost or kFile.
  int64_t remote_memory = -1;                   ///< Budget of that tier in bytes; -1: none.
  int processes = 1;                            ///< Processes that share the replicas evenly.
  bool remote_direct = false;  ///< A file bypasses the page cache, by way of staging memory.
  bool verify_remote = false;  ///< Checksums verify all bytes that are read from a file.
  /// Queues of a device that run transfers beside its work: 0, 1, or 3 (loads, stores, prefetches).
  int io_queues = 1;
  std::vector<std::string> disable;  ///< Names of optional passes to leave out.
  std::string print_after;           ///< Name of a pass, or "all": print its result to stderr.
  bool verify = false;  ///< Verify all bodies after every pass; debug builds always do.
};

/// Kernels that the fuse pass made, and why ops that read each other stayed apart, each with its number.
struct FusionReport {
  std::map<std::string, int64_t> made;     ///< "MatMul+Add+Gelu".
  std::map<std::string, int64_t> refused;  ///< "Softmax after MatMul+Add: …".
};

}  // namespace sluice
