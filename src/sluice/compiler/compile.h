#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sluice/compiler/options.h"
#include "sluice/ir/ir.h"

namespace sluice {

/// Time and effect of one pass.
struct PassRecord {
  std::string name;
  std::string reason;  ///< Why the pass exists and stands where it does.
  double seconds = 0;
  int64_t changes = 0;  ///< Nodes removed, calls inlined, … as the pass counts.
  bool enabled = true;
};

struct Compiled {
  exe::Executable executable;
  std::vector<PassRecord> passes;
  FusionReport fusions;
  double seconds = 0;
  /// Index in executable.variables, by the variable's identity.
  std::unordered_map<const VariableInfo*, int32_t> variable_index;
  /// The variables of the Ir, by index in executable.variables.
  std::vector<std::shared_ptr<const VariableInfo>> variables;
};

/// Compiles every entry graph for the devices. Error{kDoesNotFit} with the bytes needed, the holders of the peak, the
/// smallest budget that this compiler finds a plan for and the live-set bound, if a budget cannot be met; Error{kUsage}
/// for an op that no kernel of its target supports, an unknown pass name, another number of io queues, and an io mode
/// without io queues.
Compiled compile(const Ir& ir, const CompileOptions& options);

/// Names and reasons of all passes in order; optional ones may be disabled.
struct PassDoc {
  std::string name;
  std::string reason;
  bool optional = false;
};
std::vector<PassDoc> compiler_passes();

}  // namespace sluice
