#pragma once
#include "sluice/cpu/gemm/gemm.h"
#include "sluice/ops/matmul.h"

namespace sluice::cpu {

/// Maximum number of tasks of a matrix product: enough to balance a few workers. The plan depends
/// on this number; the bits of the result do not.
inline constexpr int64_t kMaxGemmTasks = 16;

/// Returns the sizes, flags and leading dimensions for one matrix product of a (batched) matmul.
GemmArgs gemm_args(const ops::MatmulShape& shape);

/// Returns gemm_grid() cut along one axis only, so that a stride and a pitch describe a task's part
/// of C. The axis is columns if they give several tasks, otherwise rows.
GemmGrid one_axis_grid(const GemmArgs& args);

}  // namespace sluice::cpu
