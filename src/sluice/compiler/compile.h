#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/ir/ir.h"
#include "sluice/target/target.h"

namespace sluice {

/// A device to compile for.
struct DeviceSpec {
  std::shared_ptr<const Target> target;
  int64_t memory = -1;  ///< Budget in bytes; -1: none.
  int threads =
      1;  ///< Workers of the pool that runs the replicas of a process; each has workspace of its own.
};

struct CompileOptions {
  std::vector<DeviceSpec> devices;
  exe::Space remote_space = exe::Space::kHost;  ///< Where remote buffers lie: kHost or kFile.
  int64_t remote_memory = -1;                   ///< Budget of that tier in bytes; -1: none.
  int processes = 1;                            ///< That share the replicas evenly.
  bool remote_direct = false;  ///< A file goes past the page cache, by way of staging memory.
  bool verify_remote = false;  ///< What is read of a file is checked by checksums.
  /// Queues of a device that run transfers beside its work: 0, 1, or 3 (loads, stores, prefetches).
  int io_queues = 1;
  std::vector<std::string> disable;  ///< Names of optional passes to leave out.
  std::string print_after;           ///< Name of a pass, or "all": its result goes to stderr.
};

/// Time and effect of one pass, summed over functions.
struct PassRecord {
  std::string name;
  std::string doc;
  double seconds = 0;
  int64_t changes = 0;  ///< Nodes removed, calls inlined, … as the pass counts.
};

/// What the fuse pass made, and why ops that read each other stayed apart, each with how often.
struct FusionReport {
  std::map<std::string, int64_t> made;     ///< "MatMul+Add+Gelu".
  std::map<std::string, int64_t> refused;  ///< "Softmax after MatMul+Add: …".
};

struct Compiled {
  exe::Executable executable;
  std::vector<PassRecord> passes;
  FusionReport fusions;
  double seconds = 0;
  /// Index in executable.variables, by the variable's identity.
  std::unordered_map<const VariableInfo*, int32_t> variable_index;
  /// What they are in the Ir, by index in executable.variables.
  std::vector<std::shared_ptr<const VariableInfo>> variables;
};

/// Compiles every entry graph for the devices. Error{kDoesNotFit} with the bytes needed, the holders of the peak, the
/// smallest budget that this compiler finds a plan for and the live-set bound, if a budget cannot be met; Error{kUsage}
/// for an op that no kernel of its target supports, an unknown pass name, another number of io queues, and an io mode without
/// any.
Compiled compile(const Ir& ir, const CompileOptions& options);

/// Names and docs of all passes in order; optional ones may be disabled.
struct PassDoc {
  std::string name;
  std::string doc;
  bool optional = false;
};
std::vector<PassDoc> compiler_passes();

}  // namespace sluice
