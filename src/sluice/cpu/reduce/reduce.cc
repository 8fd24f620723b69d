#include "sluice/cpu/reduce/reduce.h"

#include <algorithm>
#include <limits>

#include "sluice/base/reduce.h"

namespace sluice::cpu {
void reduce_rows(ReduceOp op, FloatArray x, int64_t rows, int64_t n, int64_t row_stride, float* y,
                 Isa isa) {
  with_kernels<internal::ReduceKernels>(isa,
                                        [&](auto k) { k.rows(op, x, rows, n, row_stride, y); });
}

void reduce_columns(ReduceOp op, FloatArray x, int64_t n, int64_t cols, int64_t row_stride,
                    float* y, Isa isa) {
  with_kernels<internal::ReduceKernels>(isa,
                                        [&](auto k) { k.columns(op, x, n, cols, row_stride, y); });
}

void reduce_runs(ReduceOp op, FloatArray x, int64_t runs, int64_t rows, int64_t n, int64_t first,
                 int64_t end, float* y, Isa isa) {
  with_kernels<internal::ReduceKernels>(
      isa, [&](auto k) { k.runs(op, x, runs, rows, n, first, end, y); });
}

void reduce_begin(ReduceOp op, int64_t results, float* partial, int64_t step) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float identity = 0;
  if (op == ReduceOp::kProd) identity = 1;
  if (op == ReduceOp::kMax) identity = -kInfinity;
  if (op == ReduceOp::kMin) identity = kInfinity;
  for (int j = 0; j < kReduceLanes; ++j) std::fill_n(partial + j * step, results, identity);
}

void reduce_more_columns(ReduceOp op, const float* x, int64_t first, int64_t rows, int64_t results,
                         int64_t row_stride, float* partial, int64_t step, Isa isa) {
  with_kernels<internal::ReduceKernels>(
      isa, [&](auto k) { k.more_columns(op, x, first, rows, results, row_stride, partial, step); });
}

void reduce_more_row(ReduceOp op, const float* x, int64_t n, float* partial, Isa isa) {
  with_kernels<internal::ReduceKernels>(isa, [&](auto k) { k.more_row(op, x, n, partial); });
}

void reduce_end(ReduceOp op, int64_t n, int64_t results, float* partial, int64_t step, float* y,
                Isa isa) {
  with_kernels<internal::ReduceKernels>(isa,
                                        [&](auto k) { k.end(op, n, results, partial, step, y); });
}

void softmax_rows(const float* x, int64_t rows, int64_t n, float* y, Isa isa) {
  with_kernels<internal::ReduceKernels>(isa, [&](auto k) { k.softmax(x, rows, n, y); });
}

void log_softmax_rows(const float* x, int64_t rows, int64_t n, float* y, Isa isa) {
  with_kernels<internal::ReduceKernels>(isa, [&](auto k) { k.log_softmax(x, rows, n, y); });
}

void softmax_grad_rows(const float* grad, const float* y, int64_t rows, int64_t n, float* dx,
                       Isa isa) {
  with_kernels<internal::ReduceKernels>(isa, [&](auto k) { k.softmax_grad(grad, y, rows, n, dx); });
}

void log_softmax_grad_rows(const float* grad, const float* y, int64_t rows, int64_t n, float* dx,
                           Isa isa) {
  with_kernels<internal::ReduceKernels>(isa,
                                        [&](auto k) { k.log_softmax_grad(grad, y, rows, n, dx); });
}

}  // namespace sluice::cpu
