#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sluice/ir/op_def.h"
#include "sluice/target/fused_op.h"

namespace sluice {

/// The kernel that will run an op, and what the plan must know of it. All of it follows from op, options, dtypes and
/// shapes; never from threads or addresses.
struct KernelChoice {
  std::string key;              ///< Name of the kernel at the device, "cpu.gemm".
  int64_t tasks = 1;            ///< Parts that workers may run apart.
  int64_t workspace_bytes = 0;  ///< Scratch memory of a worker.
  /// Per operand (inputs, then outputs): task t touches bytes [t·s, (t+1)·s); 0: all of it. Empty: all 0.
  std::vector<int64_t> task_stride;
  /// Per operand: if not 0, the cut is of each row of this many bytes. Empty: all 0.
  std::vector<int64_t> task_pitch;
  /// (input, output) pairs that may be exactly the same bytes.
  std::vector<std::pair<int, int>> may_coincide;
};

/// What a kind of device answers at compile time.
class Target {
 public:
  virtual ~Target() = default;
  virtual std::string kind() const = 0;  ///< "cpu".
  virtual std::string isa() const = 0;   ///< "avx512".
  /// Alignment of buffers, in bytes.
  virtual int64_t alignment() const { return 64; }
  /// The first kernel of the target's list that supports the op. Error{kUsage} naming op and dtype if none does.
  virtual KernelChoice choose(const OpView& op) const = 0;
  /// Whether one kernel of this target runs these stages, at least as fast as a kernel for each.
  virtual bool fuses(const FusedOp&) const { return false; }
  /// Whether a tensor may have a layout other than row-major.
  virtual bool has_layouts(const TensorSpec&) const { return false; }
  /// Bytes of a buffer that holds a tensor, padding included. Error{kUsage} for a layout that the tensor cannot have.
  virtual int64_t buffer_bytes(const TensorSpec& spec, const Layout& layout) const;
  /// Whether one kernel runs the op in every layout of this target, with FusedOp::with_layout.
  virtual bool fuses_in_all_layouts(const FusedOp&) const { return false; }
  /// The layout in which an operand of the op is read fastest; row-major if it does not matter.
  virtual Layout preferred_layout(const FusedOp&, int /*operand*/) const { return {}; }
  /// The kernel for stages that `fuses` accepts, or for one op on operands that are not all row-major.
  virtual KernelChoice choose_fused(const FusedOp& op) const;
  /// The kernel that copies a tensor, from one layout to another.
  virtual KernelChoice copy(const TensorSpec& spec, const Layout& from, const Layout& to) const = 0;
};

/// The pairs of an op's `may_coincide` whose operands have as many elements of the same size.
std::vector<std::pair<int, int>> coinciding_operands(const OpView& op);

}  // namespace sluice
