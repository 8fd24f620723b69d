#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sluice/exe/executable.h"
#include "sluice/runtime/device_address.h"

namespace sluice::runtime {

class Strand;
struct RunState;

/// Arguments of a kernel on the host: operands (inputs, then outputs), scratch memory of the
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
};

/// Arguments of a collective's kernel: the operands of all members of the group, by member.
struct CollectiveBlock {
  const DeviceAddress* inputs = nullptr;
  const DeviceAddress* outputs = nullptr;  ///< Null for members of other processes.
  int64_t member = 0;                      ///< Member whose share of the work runs.
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

/// A device in one replica: its memory, and the strands that execute its programs.
class OpenDevice {
 public:
  virtual ~OpenDevice() = default;
  /// Allocates memory for the life of this object, aligned as the target says. Error{kDoesNotFit}
  /// if the device or the system refuses it.
  virtual DeviceAddress allocate(int64_t bytes) = 0;
  /// Copies logical elements between a tensor in this memory and a row-major array on the host,
  /// between runs. The first element is `begin`; the size of the array determines their number.
  /// `layout` is a layout of the target, as text. Error{kUsage} for any other layout.
  virtual void read(DeviceAddress tensor, const TensorSpec& spec, std::string_view layout,
                    int64_t begin, std::span<std::byte> out) = 0;
  virtual void write(DeviceAddress tensor, const TensorSpec& spec, std::string_view layout,
                     int64_t begin, std::span<const std::byte> in) = 0;
  /// Returns memory as host memory, for messages to and from other processes.
  virtual std::span<std::byte> host_bytes(DeviceAddress begin, int64_t bytes) = 0;
  /// Creates the strand of a worker. `run` and its devices must outlive the strand. `device` is the
  /// index of this device in the executable.
  virtual std::unique_ptr<Strand> strand(RunState& run, exe::DeviceId device, int worker) = 0;
};

/// The open devices of a replica; null for those of other processes.
using OpenDevices = Ids<exe::DeviceId, OpenDevice*>;

/// A device that can run programs.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string kind() const = 0;
  /// Binds the kernel of a key to operands of the step's specs. Error{kUsage} for an unknown key.
  /// Error{kBadFile} for operands or options that the kernel does not support.
  virtual BoundKernel bind(const exe::Kernel& kernel) = 0;
  /// Binds a collective of groups of this shape, with the errors of `bind` for kernels.
  virtual BoundCollective bind(const exe::Collective& collective,
                               const exe::ReplicaGroup& group) = 0;
  /// Opens the device for one replica.
  virtual std::unique_ptr<OpenDevice> open() = 0;
};

}  // namespace sluice::runtime
