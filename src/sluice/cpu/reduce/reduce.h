#pragma once
#include <cstddef>
#include <cstdint>

#include "sluice/base/dtype.h"
#include "sluice/cpu/simd/isa.h"

/// Reductions in the canonical order of base/reduce.h, for every instruction set. 16 interleaved
/// partial results are combined in a fixed tree; more than 65,536 elements are reduced in chunks.
/// Arrays are f32 unless stated otherwise; all functions compute in f32. Results must not overlap
/// inputs unless stated otherwise.
namespace sluice::cpu {

/// A read-only array of f32, f16 or bf16.
struct FloatArray {
  FloatArray(const float* x) : data(x) {}  // NOLINT: implicit
  FloatArray(const void* x, DType type) : data(x), dtype(type) {}
  /// Returns the array from element i on.
  FloatArray from(int64_t i) const {
    return {static_cast<const std::byte*>(data) + i * size_of(dtype), dtype};
  }

  const void* data;
  DType dtype = f32;
};

/// The kind of a reduction. kL1 sums |x|; kL2 and kSumSquare sum x²; kL2 then takes the square
/// root. kMean divides the sum by the number of elements. kSumSquareExtended and kSumExtended sum
/// x² and x in extended range (numbers/extended_range.h). The result is NaN if an element is NaN.
/// Without elements it is 0 for sums, 1 for kProd, -inf for kMax, inf for kMin, and NaN for kMean.
enum class ReduceOp {
  kSum,
  kMean,
  kMax,
  kMin,
  kProd,
  kL1,
  kL2,
  kSumSquare,
  kSumSquareExtended,
  kSumExtended
};

/// Computes y[r] = reduction of x[r·row_stride + i] over i < n, for r < rows.
void reduce_rows(ReduceOp op, FloatArray x, int64_t rows, int64_t n, int64_t row_stride, float* y,
                 Isa isa = current_isa());

/// Computes y[c] = reduction of x[i·row_stride + c] over i < n, for c < cols.
void reduce_columns(ReduceOp op, FloatArray x, int64_t n, int64_t cols, int64_t row_stride,
                    float* y, Isa isa = current_isa());

/// Computes y[r] = reduction of x[run·rows·n + r·n + i] over run < runs and i < n, in this order,
/// for first <= r < end. y[0] is the result of `first`.
void reduce_runs(ReduceOp op, FloatArray x, int64_t runs, int64_t rows, int64_t n, int64_t first,
                 int64_t end, float* y, Isa isa = current_isa());

/// These four functions reduce up to kReduceChunk elements (base/reduce.h) in parts. `partial` has
/// 16 rows of `step` floats; its first `results` columns belong to the results. reduce_begin()
/// initializes `partial`. The reduce_more functions combine element i with partial row i mod 16;
/// parts must come in ascending order. reduce_end() computes the results of `n` elements each.
void reduce_begin(ReduceOp op, int64_t results, float* partial, int64_t step);
/// Adds rows [first, first + rows) of an operand whose columns are reduced. `x` points to row
/// `first`.
void reduce_more_columns(ReduceOp op, const float* x, int64_t first, int64_t rows, int64_t results,
                         int64_t row_stride, float* partial, int64_t step, Isa isa = current_isa());
/// Adds n more elements of one row. `partial` has 16 floats. n must be a multiple of 16 except in
/// the last part.
void reduce_more_row(ReduceOp op, const float* x, int64_t n, float* partial,
                     Isa isa = current_isa());
void reduce_end(ReduceOp op, int64_t n, int64_t results, float* partial, int64_t step, float* y,
                Isa isa = current_isa());

/// Computes y = e / Σe with e = exp(x - max x) for each of `rows` contiguous rows of n elements. y
/// may be x.
void softmax_rows(const float* x, int64_t rows, int64_t n, float* y, Isa isa = current_isa());

/// Computes y = (x - max x) - log Σ exp(x - max x) for each row. y may be x.
void log_softmax_rows(const float* x, int64_t rows, int64_t n, float* y, Isa isa = current_isa());

/// Computes dx = y·(grad - Σ grad·y) for each row from softmax's result y and its gradient. dx may
/// be grad or y.
void softmax_grad_rows(const float* grad, const float* y, int64_t rows, int64_t n, float* dx,
                       Isa isa = current_isa());

/// Computes dx = grad - exp(y)·Σ grad for each row from log_softmax's result y and its gradient. dx
/// may be grad or y.
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
  static void runs(ReduceOp op, FloatArray x, int64_t runs, int64_t rows, int64_t n, int64_t first,
                   int64_t end, float* y);
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
