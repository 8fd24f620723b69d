#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sluice/ir/op_def.h"
#include "sluice/runtime/device.h"
#include "sluice/target/target.h"

namespace sluice::cpu {

/// A copy of an op's definition, options and specs, which a bound kernel owns.
struct OpRecord {
  const OpDef* def = nullptr;
  Attrs attrs;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  OpView view() const { return OpView(*def, attrs, inputs, outputs); }
};

/// A way to run ops on the CPU.
struct CpuKernel {
  std::string_view key;  ///< Name of the kernel, such as "cpu.gemm".
  bool (*supports)(const OpView& op);
  /// Chooses tasks, workspace and ranges. The target adds the key and the coinciding operands.
  KernelChoice (*choose)(const OpView& op);
  runtime::BoundKernel (*bind)(std::shared_ptr<const OpRecord> op);
};

/// Returns the CPU_KERNELS of cpu/CMakeLists.txt in that order. The first that supports an op runs
/// it; the last runs any op that has a reference kernel.
std::span<const CpuKernel> kernel_list();

/// The kernel "cpu.fused" runs several stages, or one stage on operands in panels.
bool fused_kernel_supports(const FusedOp& op);
Layout preferred_fused_layout(const FusedOp& op, int operand);
KernelChoice choose_fused_kernel(const FusedOp& op);
runtime::BoundKernel bind_fused_kernel(const FusedOp& op);

/// The kernel "cpu.copy" copies a tensor of `spec` from one layout to another.
KernelChoice choose_copy_kernel(const TensorSpec& spec, const Layout& from, const Layout& to);
runtime::BoundKernel bind_copy_kernel(const TensorSpec& spec, const Layout& from, const Layout& to);

/// Binds a collective that runs in replica groups like `group`. It must have passed
/// check_signature().
runtime::BoundCollective bind_collective(const exe::Collective& collective,
                                         const exe::ReplicaGroup& group);

}  // namespace sluice::cpu
