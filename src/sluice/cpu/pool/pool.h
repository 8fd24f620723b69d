#pragma once
#include <cstdint>
#include <optional>

#include "sluice/cpu/simd/isa.h"
#include "sluice/ops/pool_shape.h"

/// Pools of f32 for every instruction set, with the bits of the reference kernels (ops/pooling.cc).
///
/// Lanes are results side by side in a row. Rows are packed first: a packed row has the elements of
/// an operand with the padding around them, split into residues if the width has a stride. The
/// residue of element i is i mod stride. So each tap of a row of windows is one contiguous vector.
/// A band of rows of the result is computed from one packing. Windows of 2 x 2 elements without
/// overlap, and maxima of whole planes, are not packed. The gradient of other maxima is scattered,
/// because each window propagates it to one element.
namespace sluice::cpu {

/// How to compute a pool, or the gradient of one, on planes of one shape.
struct PoolPlan {
  static constexpr int64_t kMaxTaps = 64;  ///< Largest kernel and stride of the width.
  static constexpr int64_t kMaxRows = 64;  ///< Maximum number of rows of a window, in all depths.

  /// Return the plan of a pool, of the gradient of an average and of that of a maximum. Return
  /// nothing for windows that are too large.
  static std::optional<PoolPlan> forward(const ops::PoolShape& shape);
  static std::optional<PoolPlan> average_gradient(const ops::PoolShape& shape);
  static std::optional<PoolPlan> max_gradient(const ops::PoolShape& shape);

  ops::PoolShape shape;
  ops::PoolAxis axes[3];
  int64_t x_positions = 0;
  int64_t y_positions = 0;
  bool is_quads = false;  ///< Windows are 2 x 2 elements of a plane, side by side, none partial.
  bool is_whole = false;  ///< One window has all elements of a plane.

  int64_t left = 0;            ///< Elements of padding before a residue.
  int64_t residues = 0;        ///< Residues in a packed row.
  int64_t residue_floats = 0;  ///< Floats of a residue in a packed row.
  int64_t band = 1;            ///< Rows of the result that are computed from one packing.
  int64_t packed_rows = 1;     ///< Rows of each depth that are packed for a band.
  int64_t packed_depths = 1;   ///< Depths that are packed.
  int64_t residue_step = 0;    ///< Gradient: floats of a residue of a row of the result.
  int64_t edge_floats = 0;     ///< Workspace before the packed rows: one float for each window of a
                               ///< row; before them in a gradient, the residues of a row.
  int64_t workspace_floats = 0;

  /// Forward: residue i of a packed row has elements residue_of[i], residue_of[i] + stride, ….
  int32_t residue_of[kMaxTaps] = {};
  /// Forward: for each tap, the offset in a packed row of its element for the first result.
  /// Gradient: the same for the taps of residue 0 of the result, those of residue 1, …; the taps of
  /// a residue descend.
  int32_t offset[kMaxTaps] = {};
  int32_t first_of_residue[kMaxTaps + 1] = {};  ///< Gradient: where the taps of a residue begin.
};

/// Compute `planes` planes. The arrays begin at the first plane; none overlap. `workspace` has
/// plan.workspace_floats floats, aligned to 64 bytes.
void max_pool_planes(const PoolPlan& plan, const float* x, int64_t planes, float* y,
                     float* workspace, Isa isa = current_isa());
void max_pool_taps_planes(const PoolPlan& plan, const float* x, int64_t planes, uint8_t* taps,
                          float* workspace, Isa isa = current_isa());
void average_pool_planes(const PoolPlan& plan, const float* x, int64_t planes, float* y,
                         float* workspace, Isa isa = current_isa());
void max_pool_grad_planes(const PoolPlan& plan, const float* grad, const uint8_t* taps,
                          int64_t planes, float* dx, Isa isa = current_isa());
void average_pool_grad_planes(const PoolPlan& plan, const float* grad, int64_t planes, float* dx,
                              float* workspace, Isa isa = current_isa());

namespace internal {
/// The kernels of one instruction set (pool.isa.cc, pool_grad.isa.cc).
template <Isa kIsa>
struct PoolKernels {
  static void max(const PoolPlan& plan, const float* x, int64_t planes, float* y, float* workspace);
  static void taps(const PoolPlan& plan, const float* x, int64_t planes, uint8_t* taps,
                   float* workspace);
  static void average(const PoolPlan& plan, const float* x, int64_t planes, float* y,
                      float* workspace);
  static void max_grad_quads(const PoolPlan& plan, const float* grad, const uint8_t* taps,
                             int64_t planes, float* dx);
  static void average_grad(const PoolPlan& plan, const float* grad, int64_t planes, float* dx,
                           float* workspace);
};
}  // namespace internal

}  // namespace sluice::cpu
