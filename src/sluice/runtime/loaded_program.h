#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/runtime/device.h"

namespace sluice::runtime {

/// Address of a kernel's operand, relative to an activation.
struct Argument {
  int32_t base = 0;  ///< 0: the frame; 1 + p: parameter p; ~a: arena a.
  int64_t offset = 0;
  const exe::Address* ring = nullptr;  ///< Selects the slot of a ring; null without a ring.

  /// Returns whether the argument is in an arena or in the frame, at a constant offset.
  bool is_fixed() const { return base <= 0 && ring == nullptr; }
};

/// A bound kernel of a function.
struct LoadedKernel {
  KernelFunction run = nullptr;
  const exe::Step* step = nullptr;
  const void* state = nullptr;
  size_t first = 0;  ///< Index of its first argument in LoadedFunction::arguments.
  size_t arguments = 0;
  bool fixed = false;  ///< All arguments are fixed.
  const std::vector<exe::IndexExpr>* scalars = nullptr;
  int64_t tasks = 1;
  int64_t operand_bytes = 0;  ///< Bytes of all operands, for the counters.
  double flops = 0;
};

struct LoadedStep {
  const exe::Step* step = nullptr;
  bool sync = false;
  int32_t kernel = -1;      ///< Index into LoadedFunction::kernels, -1 for other steps.
  int32_t collective = -1;  ///< Index into LoadedFunction::collectives, -1 for other steps.
  int32_t moved = -1;       ///< Index into LoadedProgram::moves, -1 for other steps.
};

struct LoadedFunction {
  const exe::Function* function = nullptr;
  std::vector<LoadedStep> steps;
  std::vector<LoadedKernel> kernels;
  std::vector<Argument> arguments;  ///< Arguments of all kernels.
  /// Frame of a function that only programs start, always at this address; null for any other
  /// function.
  const exe::Address* entry_frame = nullptr;
  std::vector<BoundKernel> bound;
  std::vector<BoundCollective> collectives;
};

/// Sizes that a strand must reserve so that running allocates nothing.
struct StackNeeds {
  int depth = 0;
  size_t params = 0;  ///< Largest number of parameters along a chain of calls.
  size_t index_params = 0;
  size_t operands = 0;  ///< Largest number of operands of a kernel.
  size_t scalars = 0;
};

/// Functions of an executable with kernels bound and addresses resolved, shared by all strands.
/// Read-only during runs.
struct LoadedProgram {
  Ids<exe::FunctionId, LoadedFunction> functions;
  /// The transfers, messages and collectives of all functions.
  std::vector<const exe::Step*> moves;
  StackNeeds needs;
};

/// Returns the errors with which devices refuse kernels and collectives of their functions, at most
/// `max` errors. Skips functions of null devices.
std::vector<std::string> refused_steps(const exe::Executable& executable,
                                       const Ids<exe::DeviceId, Device*>& devices, size_t max = 16);

/// Binds every kernel and collective of the executable. Errors name the op and its source line.
LoadedProgram load(const exe::Executable& executable, const Ids<exe::DeviceId, Device*>& devices);

}  // namespace sluice::runtime
