#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/runtime/device.h"

namespace sluice::runtime {

/// An executable's functions with kernels bound and names resolved, shared by all strands. Read-only while running.
struct LoadedKernel {
  KernelFunction run = nullptr;
  const void* state = nullptr;
  const std::vector<exe::Operand>* operands = nullptr;
  const std::vector<exe::IndexExpr>* scalars = nullptr;
  int64_t tasks = 1;
  int64_t operand_bytes = 0;  ///< Sum over operands, for the counters.
  double flops = 0;
};

struct LoadedStep {
  const exe::Step* step = nullptr;
  int32_t kernel = -1;      ///< Index into LoadedFunction::kernels, -1 for other steps.
  int32_t collective = -1;  ///< Index into LoadedFunction::collectives, likewise.
};

struct LoadedFunction {
  const exe::Function* function = nullptr;
  std::vector<LoadedStep> steps;
  std::vector<LoadedKernel> kernels;
  std::vector<BoundKernel> bound;
  std::vector<BoundCollective> collectives;
};

/// How much a strand must reserve so that running allocates nothing.
struct StackNeeds {
  int depth = 0;
  size_t params = 0;  ///< Most parameters alive at once along a chain of calls.
  size_t index_params = 0;
  size_t operands = 0;  ///< Most operands of a kernel.
  size_t scalars = 0;
};

struct LoadedProgram {
  std::vector<LoadedFunction> functions;
  StackNeeds needs;
};

/// Binds every kernel of the executable. Errors carry the op and where it was made.
LoadedProgram load(const exe::Executable& executable, const std::vector<Device*>& devices);

}  // namespace sluice::runtime
