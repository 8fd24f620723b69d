#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sluice/ir/op_def.h"
#include "sluice/target/fused_op.h"

namespace sluice {

/// The kernel that runs an op, and its properties that the plan needs. They depend only on the op,
/// its options, dtypes and shapes, never on threads or addresses.
struct KernelChoice {
  std::string key;              ///< Name of the kernel on the device, "cpu.gemm".
  int64_t tasks = 1;            ///< Number of parts that different workers may run.
  int64_t workspace_bytes = 0;  ///< Scratch bytes for each worker.
  int64_t flops = 0;            ///< Floating-point operations of all tasks; the compiler sets them.
  /// Bytes s per task, for each operand (inputs, then outputs): task t accesses bytes [t·s,
  /// (t+1)·s). If s is 0, every task accesses the whole operand. An empty vector means 0 for all
  /// operands.
  std::vector<int64_t> task_stride;
  /// Bytes per row, for each operand: if not 0, task_stride cuts each row instead of the operand.
  /// An empty vector means 0 for all operands.
  std::vector<int64_t> task_pitch;
  /// (input, output) pairs that may be exactly the same bytes.
  std::vector<std::pair<int, int>> may_coincide;
};

/// The properties of a kind of device that the compiler asks for.
class Target {
 public:
  virtual ~Target() = default;
  virtual std::string kind() const = 0;  ///< "cpu".
  virtual std::string isa() const = 0;   ///< "avx512".
  /// Alignment of buffers, in bytes: a multiple of 64.
  virtual int64_t alignment() const { return 64; }
  /// Whether devices of this kind run commands of queues (runtime/queue.h): the host cannot address
  /// their memory, and their transfers pass through pinned memory.
  virtual bool is_queued() const { return false; }
  /// Returns the first kernel in the target's list that supports the op. Error{kUsage} naming op
  /// and dtype if no kernel does.
  virtual KernelChoice choose(const OpView& op) const = 0;
  /// Returns the bytes of workspace in which a collective of `members` replicas holds copies of the
  /// other members' inputs. `op` has the input and the output of one member. 0 if members read the
  /// inputs in place. Devices with queues copy them (runtime/queued/meeting.h).
  virtual int64_t collective_workspace(const OpView& /*op*/, int32_t /*members*/) const {
    return 0;
  }
  /// Whether one kernel of this target runs these stages at least as fast as one kernel per stage.
  virtual bool fuses(const FusedOp&) const { return false; }
  /// Whether a tensor may have a layout other than row-major.
  virtual bool has_layouts(const TensorSpec&) const { return false; }
  /// Returns the bytes of a buffer for a tensor, padding included. Error{kUsage} if the tensor
  /// cannot have this layout.
  virtual int64_t buffer_bytes(const TensorSpec& spec, const Layout& layout) const;
  /// Whether one kernel runs op.with_layout(l) for every layout l of this target.
  virtual bool fuses_in_all_layouts(const FusedOp&) const { return false; }
  /// The layout in which the op reads an operand fastest; row-major if it makes no difference.
  virtual Layout preferred_layout(const FusedOp&, int /*operand*/) const { return {}; }
  /// Returns the kernel for stages that `fuses` accepts, or for one op whose operands are not all
  /// row-major.
  virtual KernelChoice choose_fused(const FusedOp& op) const;
  /// Returns the kernel that copies a tensor from one layout to another.
  virtual KernelChoice copy(const TensorSpec& spec, const Layout& from, const Layout& to) const = 0;
};

/// Returns the pairs of the op's `may_coincide` whose operands have equally many elements of the
/// same size.
std::vector<std::pair<int, int>> coinciding_operands(const OpView& op);

}  // namespace sluice
