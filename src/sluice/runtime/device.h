#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sluice/exe/executable.h"

namespace sluice::runtime {

/// What a kernel gets: resolved operand addresses (inputs, then outputs), the worker's scratch memory, evaluated
/// scalar arguments.
struct KernelBlock {
  std::byte* const* operands = nullptr;
  std::byte* workspace = nullptr;
  const int64_t* scalars = nullptr;
};

/// Runs task `task` of a kernel. `state` is what binding prepared: shapes, decoded options.
using KernelFunction = void (*)(const void* state, const KernelBlock& block, int64_t task);

/// A kernel of a device, ready to run: one indirect call a task.
struct BoundKernel {
  KernelFunction run = nullptr;
  std::shared_ptr<const void> state;
  double flops = 0;  ///< Of all tasks.
};

/// What a collective's kernel gets: the operands of all members of the group, by member.
struct CollectiveBlock {
  std::byte* const* inputs = nullptr;
  std::byte* const* outputs = nullptr;  ///< Null where that of another is not within reach.
  int64_t member = 0;                   ///< Whose share of the work this is.
  int64_t part = 0;  ///< Which of as many parts of that share as the member has workers.
  int64_t parts = 1;
};

/// Bytes [begin, end) of an operand.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// A collective of a device, ready to run. All shares together, in any order, are the collective.
struct BoundCollective {
  void (*run)(const void* state, const CollectiveBlock& block) = nullptr;
  std::shared_ptr<const void> state;
  /// What a member's share reads of each other member's input, and writes of each other member's output, where the same
  /// bytes belong. Both ends ascend with the member.
  ByteRange (*reads)(const void* state, int64_t member) = nullptr;
  ByteRange (*writes)(const void* state, int64_t member) = nullptr;
};

/// Device memory of one arena.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() = 0;
};

/// A device that can run programs.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string kind() const = 0;
  /// Memory aligned to 64 bytes. Error{kDoesNotFit} if the system refuses it.
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;
  /// The kernel of a key on operands of the step's specs. Error{kUsage} for an unknown key, kBadFile for operands or
  /// options that the kernel does not take.
  virtual BoundKernel bind(const exe::Kernel& kernel) = 0;
  /// The same for a collective of such groups of replicas.
  virtual BoundCollective bind(const exe::Collective& collective,
                               const exe::ReplicaGroup& group) = 0;
  /// Copies logical elements from `begin` on between a tensor in this device's memory and a row-major array on the host, as
  /// many as the array has. `layout` is one of the target's, as text. Error{kUsage} for another one.
  virtual void read(const std::byte* memory, const TensorSpec& spec, std::string_view layout,
                    int64_t begin, std::span<std::byte> out) const = 0;
  virtual void write(std::byte* memory, const TensorSpec& spec, std::string_view layout,
                     int64_t begin, std::span<const std::byte> in) const = 0;
};

}  // namespace sluice::runtime
