#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "sluice/ir/op_def.h"
#include "sluice/runtime/device.h"
#include "sluice/target/target.h"

namespace sluice::cpu {

/// An op as a bound kernel keeps it: definition, options and specs of its own.
struct OpRecord {
  const OpDef* def = nullptr;
  Attrs attrs;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  OpView view() const { return OpView(*def, attrs, inputs, outputs); }
};

/// A way to run ops on the CPU.
struct CpuKernel {
  std::string_view key;  ///< "cpu.gemm".
  bool (*supports)(const OpView& op);
  /// Tasks, workspace and ranges; key and coinciding operands are filled in by the target.
  KernelChoice (*choose)(const OpView& op);
  runtime::BoundKernel (*bind)(std::shared_ptr<const OpRecord> op);
};

/// CPU_KERNELS of cpu/CMakeLists.txt, in that order: the first that supports an op runs it. The last runs any op with a
/// reference kernel.
std::span<const CpuKernel> kernel_list();

/// The kernel of several stages, or of one on operands in panels: "cpu.fused".
bool fused_kernel_supports(const FusedOp& op);
Layout preferred_fused_layout(const FusedOp& op, int operand);
KernelChoice choose_fused_kernel(const FusedOp& op);
runtime::BoundKernel bind_fused_kernel(const FusedOp& op);

/// Copies a tensor from one layout to another.
KernelChoice choose_copy_kernel(const TensorSpec& spec, const Layout& from, const Layout& to);
runtime::BoundKernel bind_copy_kernel(const TensorSpec& spec, const Layout& from, const Layout& to);

/// A collective of such groups of replicas, whose signature is right.
runtime::BoundCollective bind_collective(const exe::Collective& collective,
                                         const exe::ReplicaGroup& group);

/// Flops of an op by its definition.
double flops_of(const OpView& op);

}  // namespace sluice::cpu
