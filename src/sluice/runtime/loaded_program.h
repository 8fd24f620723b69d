#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/runtime/device.h"

namespace sluice::runtime {

/// Where an operand of a kernel begins.
struct Argument {
  int32_t base = 0;  ///< Of an activation: 0 its frame, 1 + p its parameter p. ~a: arena a.
  int64_t offset = 0;
  const exe::Address* ring = nullptr;  ///< Where a slot of a ring is meant, and which one.
};

/// A kernel of a function, bound.
struct LoadedKernel {
  KernelFunction run = nullptr;
  const void* state = nullptr;
  size_t first = 0;  ///< Among LoadedFunction::arguments.
  size_t arguments = 0;
  bool fixed = false;  ///< All of them lie in arenas or the frame, at offsets that never change.
  const std::vector<exe::IndexExpr>* scalars = nullptr;
  int64_t tasks = 1;
  int64_t operand_bytes = 0;  ///< Sum over operands, for the counters.
  double flops = 0;
};

struct LoadedStep {
  const exe::Step* step = nullptr;
  bool sync = false;
  int32_t kernel = -1;      ///< Index into LoadedFunction::kernels, -1 for other steps.
  int32_t collective = -1;  ///< Index into LoadedFunction::collectives, likewise.
};

struct LoadedFunction {
  const exe::Function* function = nullptr;
  std::vector<LoadedStep> steps;
  std::vector<LoadedKernel> kernels;
  std::vector<Argument> arguments;  ///< Of all kernels.
  /// The frame, if the function is run by programs alone, and at one place.
  const exe::Address* entry_frame = nullptr;
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

/// An executable's functions with kernels bound and names resolved, shared by all strands. Read-only while running.
struct LoadedProgram {
  std::vector<LoadedFunction> functions;
  StackNeeds needs;
};

/// The addresses of a function's arguments where its frame and the arenas are fixed, by argument; none if they are not.
/// Null where an argument varies all the same.
std::vector<std::byte*> fixed_arguments(const LoadedFunction& function,
                                        const std::vector<std::byte*>& arenas);

/// The errors with which devices refuse kernels and collectives of their functions, at most `most`. Null devices are passed
/// over.
std::vector<std::string> refused_steps(const exe::Executable& executable,
                                       const std::vector<Device*>& devices, size_t most = 16);

/// Binds every kernel of the executable. Errors carry the op and where it was made.
LoadedProgram load(const exe::Executable& executable, const std::vector<Device*>& devices);

}  // namespace sluice::runtime
