#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sluice/compiler/options.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/ir/ir.h"

namespace sluice {

/// Time and effect of one pass.
struct PassRecord {
  std::string name;
  std::string reason;  ///< Why the pass exists, and why it runs at its position.
  double seconds = 0;
  int64_t changes = 0;  ///< Changes as the pass counts them: nodes removed, calls inlined, ….
  bool enabled = true;
};

struct Compiled {
  exe::Executable executable;
  std::vector<PassRecord> passes;
  FusionReport fusions;
  double seconds = 0;
  /// Bytes needed in each memory, with their budgets and the largest objects.
  std::vector<exe::MemoryNeeds> memories;
  /// Index in executable.variables of each variable.
  std::unordered_map<const VariableInfo*, int32_t> variable_index;
  /// The variables of the Ir, in the order of executable.variables.
  std::vector<std::shared_ptr<const VariableInfo>> variables;
};

/// Compiles every entry graph of `ir` for the devices. The plan is the same under every budget, and
/// may exceed one: exe::find_excess() judges it. Error{kUsage} if
/// - no kernel of a target supports an op,
/// - a pass name is unknown,
/// - `options.io_queues` is not 0, 1 or 3, or
/// - an io mode is used without I/O queues.
Compiled compile(const Ir& ir, const CompileOptions& options);

/// Name and reason of a pass. Optional passes may be disabled.
struct PassDoc {
  std::string name;
  std::string reason;
  bool optional = false;
};
/// All passes, in the order in which they run.
std::vector<PassDoc> compiler_passes();

}  // namespace sluice
