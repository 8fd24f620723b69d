#pragma once
#include <cstdint>

#include "sluice/cpu/isa.h"

/// Reductions in the canonical order of base/reduce.h: 16 interleaved partial results, then a fixed
/// tree, whatever the instruction set. All arrays are f32; results overlap no input unless said
/// otherwise.
namespace sluice::cpu {

/// What is reduced: x itself, x² or |x|; NaN if an element is. kMean divides the sum by the count,
/// kL2 takes its root. Without elements: 0 for sums, 1 for kProd, -inf and inf for kMax and kMin,
/// NaN for kMean.
enum class ReduceOp { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare };

/// y[r] = reduction of x[r·row_stride + i] over i < n, for r < rows.
void reduce_rows(ReduceOp op, const float* x, int64_t rows, int64_t n, int64_t row_stride, float* y,
                 Isa isa = current_isa());

/// y[c] = reduction of x[i·row_stride + c] over i < n, for c < cols.
void reduce_columns(ReduceOp op, const float* x, int64_t n, int64_t cols, int64_t row_stride,
                    float* y, Isa isa = current_isa());

/// For each of `rows` contiguous rows of n elements: y = e / Σe with e = exp(x - max x). y may be
/// x.
void softmax_rows(const float* x, int64_t rows, int64_t n, float* y, Isa isa = current_isa());

/// y = (x - max x) - log Σ exp(x - max x). y may be x.
void log_softmax_rows(const float* x, int64_t rows, int64_t n, float* y, Isa isa = current_isa());

/// From softmax's result y and its gradient: dx = y·(grad - Σ grad·y). dx may be grad or y.
void softmax_grad_rows(const float* grad, const float* y, int64_t rows, int64_t n, float* dx,
                       Isa isa = current_isa());

/// From log_softmax's result y and its gradient: dx = grad - exp(y)·Σ grad. dx may be grad or y.
void log_softmax_grad_rows(const float* grad, const float* y, int64_t rows, int64_t n, float* dx,
                           Isa isa = current_isa());

namespace internal {
/// The kernels of one instruction set (reduce.isa.cc).
template <Isa kIsa>
struct ReduceKernels {
  static void rows(ReduceOp op, const float* x, int64_t rows, int64_t n, int64_t row_stride,
                   float* y);
  static void columns(ReduceOp op, const float* x, int64_t n, int64_t cols, int64_t row_stride,
                      float* y);
  static void softmax(const float* x, int64_t rows, int64_t n, float* y);
  static void log_softmax(const float* x, int64_t rows, int64_t n, float* y);
  static void softmax_grad(const float* grad, const float* y, int64_t rows, int64_t n, float* dx);
  static void log_softmax_grad(const float* grad, const float* y, int64_t rows, int64_t n,
                               float* dx);
};
}  // namespace internal

}  // namespace sluice::cpu
