#pragma once
#include "sluice/cpu/kernels/kernel_list.h"

/// Which kernel runs an op.
///
/// By definition, an operator on f16 and bf16 has the results of f32, rounded once
/// (interp/run_op.h). A kernel that supports an op on f32 only can therefore run it task by task:
/// the task widens its part of the operands into the workspace of its worker, computes there, and
/// rounds its part of the results.
namespace sluice::cpu {

/// Returns the first kernel that supports the op; else the first that supports it on f32; else the
/// reference kernel. Null if the op has no reference.
const CpuKernel* select_kernel(const OpView& op);

/// Returns whether the kernel supports the op, or supports it on f32 instead of f16 and bf16.
bool can_run(const CpuKernel& kernel, const OpView& op);

/// Returns the tasks, ranges and workspace of a kernel that can run the op. If operands are
/// widened, there are as many tasks as for f32, or one if widening what all read costs too much.
KernelChoice choose_kernel(const CpuKernel& kernel, const OpView& op);

/// Binds a kernel that can run the op.
runtime::BoundKernel bind_kernel(const CpuKernel& kernel, std::shared_ptr<const OpRecord> op);

}  // namespace sluice::cpu
