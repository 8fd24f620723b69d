#include "sluice/cpu/reduce.h"

namespace sluice::cpu {
namespace {

/// Calls `f(ReduceKernels<isa>{})`.
template <typename F>
void with_kernels(Isa isa, F&& f) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return f(internal::ReduceKernels<Isa::kAvx512>{});
  if (isa == Isa::kAvx2) return f(internal::ReduceKernels<Isa::kAvx2>{});
#endif
  f(internal::ReduceKernels<Isa::kBase>{});
}

}  // namespace

void reduce_rows(ReduceOp op, const float* x, int64_t rows, int64_t n, int64_t row_stride, float* y,
                 Isa isa) {
  with_kernels(isa, [&](auto k) { k.rows(op, x, rows, n, row_stride, y); });
}

void reduce_columns(ReduceOp op, const float* x, int64_t n, int64_t cols, int64_t row_stride,
                    float* y, Isa isa) {
  with_kernels(isa, [&](auto k) { k.columns(op, x, n, cols, row_stride, y); });
}

void softmax_rows(const float* x, int64_t rows, int64_t n, float* y, Isa isa) {
  with_kernels(isa, [&](auto k) { k.softmax(x, rows, n, y); });
}

void log_softmax_rows(const float* x, int64_t rows, int64_t n, float* y, Isa isa) {
  with_kernels(isa, [&](auto k) { k.log_softmax(x, rows, n, y); });
}

void softmax_grad_rows(const float* grad, const float* y, int64_t rows, int64_t n, float* dx,
                       Isa isa) {
  with_kernels(isa, [&](auto k) { k.softmax_grad(grad, y, rows, n, dx); });
}

void log_softmax_grad_rows(const float* grad, const float* y, int64_t rows, int64_t n, float* dx,
                           Isa isa) {
  with_kernels(isa, [&](auto k) { k.log_softmax_grad(grad, y, rows, n, dx); });
}

}  // namespace sluice::cpu
