#pragma once
#include <cstddef>
#include <cstdint>

#include "sluice/base/dtype.h"
#include "sluice/cpu/simd/isa.h"

/// Reductions in the canonical order of base/reduce.h, whatever the instruction set: 16 interleaved
/// partial results, then a fixed tree; of many elements, chunk by chunk. All arrays are f32 unless said otherwise, and so is what is
/// computed; results overlap no input unless said otherwise.
namespace sluice::cpu {

/// An array to read: f32, f16 or bf16.
struct FloatArray {
  FloatArray(const float* x) : data(x) {}  // NOLINT: implicit
  FloatArray(const void* x, DType type) : data(x), dtype(type) {}
  /// The array from element i on.
  FloatArray from(int64_t i) const {
    return {static_cast<const std::byte*>(data) + i * size_of(dtype), dtype};
  }

  const void* data;
  DType dtype = f32;
};

/// What is reduced: x itself, x² or |x|; NaN if an element is. kMean divides the sum by the count,
/// kL2 takes its root. Without elements: 0 for sums, 1 for kProd, -inf and inf for kMax and kMin,
/// NaN for kMean.
enum class ReduceOp { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare };

/// y[r] = reduction of x[r·row_stride + i] over i < n, for r < rows.
void reduce_rows(ReduceOp op, FloatArray x, int64_t rows, int64_t n, int64_t row_stride, float* y,
                 Isa isa = current_isa());

/// y[c] = reduction of x[i·row_stride + c] over i < n, for c < cols.
void reduce_columns(ReduceOp op, FloatArray x, int64_t n, int64_t cols, int64_t row_stride,
                    float* y, Isa isa = current_isa());

/// A reduction of up to kReduceChunk elements (base/reduce.h) in parts. `partial` has 16 rows of
/// `step` floats, a column for each of `results` results; reduce_begin() sets it, each row i of the operand is added to partial row i mod 16, ascending,
/// and reduce_end() makes the results for `n` elements each.
void reduce_begin(ReduceOp op, int64_t results, float* partial, int64_t step);
/// Rows [first, first + rows) of an operand whose columns are reduced; x is row `first`.
void reduce_more_columns(ReduceOp op, const float* x, int64_t first, int64_t rows, int64_t results,
                         int64_t row_stride, float* partial, int64_t step, Isa isa = current_isa());
/// n more elements of one row, all but the last part a multiple of 16; `partial` is 16 floats.
void reduce_more_row(ReduceOp op, const float* x, int64_t n, float* partial,
                     Isa isa = current_isa());
void reduce_end(ReduceOp op, int64_t n, int64_t results, float* partial, int64_t step, float* y,
                Isa isa = current_isa());

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
  static void rows(ReduceOp op, FloatArray x, int64_t rows, int64_t n, int64_t row_stride,
                   float* y);
  static void columns(ReduceOp op, FloatArray x, int64_t n, int64_t cols, int64_t row_stride,
                      float* y);
  static void more_columns(ReduceOp op, const float* x, int64_t first, int64_t rows,
                           int64_t results, int64_t row_stride, float* partial, int64_t step);
  static void more_row(ReduceOp op, const float* x, int64_t n, float* partial);
  static void end(ReduceOp op, int64_t n, int64_t results, float* partial, int64_t step, float* y);
  static void softmax(const float* x, int64_t rows, int64_t n, float* y);
  static void log_softmax(const float* x, int64_t rows, int64_t n, float* y);
  static void softmax_grad(const float* grad, const float* y, int64_t rows, int64_t n, float* dx);
  static void log_softmax_grad(const float* grad, const float* y, int64_t rows, int64_t n,
                               float* dx);
};
}  // namespace internal

}  // namespace sluice::cpu
