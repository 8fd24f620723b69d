#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory.h"
#include "race_check.h"
#include "sluice/exe/executable.h"
#include "sluice/runtime/device.h"
#include "sluice/runtime/queue.h"

namespace sluice::opaque {

/// The arguments of a launch, as the queue has copied them, and what they mean.
struct Arguments {
  std::vector<runtime::DeviceAddress> operands;
  runtime::DeviceAddress workspace;
  std::vector<int64_t> scalars;

  explicit Arguments(const runtime::Launch& launch)
      : operands(launch.operands.begin(), launch.operands.end()),
        workspace(launch.workspace),
        scalars(launch.scalars.begin(), launch.scalars.end()) {}
};

/// Something that a queue can launch. The functions of the CPU compute it.
class Code {
 public:
  virtual ~Code() = default;
  /// For errors: "opaque.gemm".
  virtual const std::string& name() const = 0;
  /// Returns the bytes that a launch touches. Error{kInternal} unless the numbers of arguments are
  /// right and these bytes lie in the memory of the device.
  virtual std::vector<Touch> touches(const Arguments& arguments, const Memory& memory) const = 0;
  virtual void run(const Arguments& arguments, const Memory& memory) const = 0;
};

/// Returns the code of Launch::kernel. Error{kInternal} unless a device of this kind bound it.
const Code& code_of(const void* kernel);

/// Bind a kernel or a collective of the opaque target. BoundKernel::run and BoundCollective::run
/// throw, because the host cannot run them.
///
/// The launch of a collective runs the share of one member. Its operands are the inputs of all
/// members and then the outputs of all members, as in CollectiveBlock; its scalar is the member. An
/// output of another member may be null.
runtime::BoundKernel bind_kernel(const exe::Kernel& kernel);
runtime::BoundCollective bind_collective(const exe::Collective& collective,
                                         const exe::ReplicaGroup& group);

}  // namespace sluice::opaque
