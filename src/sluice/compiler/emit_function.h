#pragma once
#include <vector>

#include "sluice/compiler/body.h"
#include "sluice/compiler/graph_facts.h"
#include "sluice/compiler/placement.h"
#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// Addresses that all functions of an executable share.
class GlobalAddresses {
 public:
  virtual ~GlobalAddresses() = default;
  virtual exe::Address variable(int32_t index) = 0;
  virtual exe::Address constant(int32_t index, int32_t device) = 0;
  /// Value of a variable's or constant's first content.
  virtual exe::ValueId variable_value(int32_t index) = 0;
  virtual exe::ValueId constant_value(int32_t index, int32_t device) = 0;
};

struct EmitContext {
  exe::Executable* executable = nullptr;
  GlobalAddresses* globals = nullptr;
  const FactTable* facts = nullptr;
  int64_t alignment = 64;
};

/// Chooses offsets in the frame and writes the function. `callees[n]` are the functions of node n's graphs. `program`:
/// of an entry, gets the finals of its variables and the collectives of its device.
exe::Function emit_function(const Body& body, Placement& placement,
                            const std::vector<KernelChoice>& choices,
                            const std::vector<std::vector<int32_t>>& callees,
                            const EmitContext& context, exe::Program* program);

}  // namespace sluice::compiler
