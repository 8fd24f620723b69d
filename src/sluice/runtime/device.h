#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sluice/exe/executable.h"

namespace sluice::runtime {

/// Arguments of a kernel: addresses of operands (inputs, then outputs), scratch memory of the
/// worker, and evaluated scalars.
struct KernelBlock {
  std::byte* const* operands = nullptr;
  std::byte* workspace = nullptr;
  const int64_t* scalars = nullptr;
};

/// Runs task `task` of a kernel. `state` holds the shapes and decoded options that `bind` prepared.
using KernelFunction = void (*)(const void* state, const KernelBlock& block, int64_t task);

/// A kernel bound to a device, ready to run: one indirect call per task.
struct BoundKernel {
  KernelFunction run = nullptr;
  std::shared_ptr<const void> state;
  double flops = 0;  ///< Floating-point operations of all tasks.
};

/// Arguments of a collective's kernel: the operands of all members of the group, by member.
struct CollectiveBlock {
  std::byte* const* inputs = nullptr;
  std::byte* const* outputs = nullptr;  ///< Null for members of other processes.
  int64_t member = 0;                   ///< Member whose share of the work runs.
  int64_t part = 0;  ///< Index of a part of that share; each worker of the member runs one part.
  int64_t parts = 1;
};

/// Bytes [begin, end) of an operand.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// A collective bound to a device, ready to run. It consists of one share per member; shares may
/// run in any order.
struct BoundCollective {
  void (*run)(const void* state, const CollectiveBlock& block) = nullptr;
  std::shared_ptr<const void> state;
  /// Byte range of each peer's input that the share of `member` reads, and of each peer's output
  /// that it writes. Begin and end grow with `member`.
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
  /// Allocates memory aligned to 64 bytes. Error{kDoesNotFit} if the system refuses it.
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;
  /// Binds the kernel of a key to operands of the step's specs. Error{kUsage} for an unknown key.
  /// Error{kBadFile} for operands or options that the kernel does not take.
  virtual BoundKernel bind(const exe::Kernel& kernel) = 0;
  /// Binds a collective of groups of this shape, with the errors of `bind` for kernels.
  virtual BoundCollective bind(const exe::Collective& collective,
                               const exe::ReplicaGroup& group) = 0;
  /// Copies logical elements between a tensor in this device's memory and a row-major array on the
  /// host. The first element is `begin`; the size of the array gives their number. `layout` is a
  /// layout of the target, as text. Error{kUsage} for any other layout.
  virtual void read(const std::byte* memory, const TensorSpec& spec, std::string_view layout,
                    int64_t begin, std::span<std::byte> out) const = 0;
  virtual void write(std::byte* memory, const TensorSpec& spec, std::string_view layout,
                     int64_t begin, std::span<const std::byte> in) const = 0;
};

}  // namespace sluice::runtime
