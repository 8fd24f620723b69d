#pragma once
#include "sluice/cpu/gemm/gemm.h"
#include "sluice/ops/matmul.h"

namespace sluice::cpu {

/// At most so many tasks a matrix product: enough to share among a few workers evenly. Part of the plan, not of the bits.
inline constexpr int64_t kMostGemmTasks = 16;

/// The sizes, flags and leading dimensions of one matrix of a matmul.
GemmArgs gemm_args(const ops::MatmulShape& shape);

/// gemm_grid() along one axis, so that a task's part of C is described by a stride and a pitch: columns if there are
/// enough of them, else rows.
GemmGrid one_axis_grid(const GemmArgs& args);

}  // namespace sluice::cpu
