#include "sluice/cpu/attention/softmax_row.h"

namespace sluice::cpu {

RowSums softmax_row(const ScoreRow& row, Isa isa) {
  RowSums sums;
  with_kernels<internal::ScoreRowKernels>(isa, [&](auto k) { sums = k.softmax(row); });
  return sums;
}

void softmax_grad_row(const ScoreRow& row, const RowSums& sums, float* grad, Isa isa) {
  with_kernels<internal::ScoreRowKernels>(isa, [&](auto k) { k.gradient(row, sums, grad); });
}

bool has_non_finite(const float* x, int64_t stride, int64_t rows, int64_t cols, Isa isa) {
  bool found = false;
  with_kernels<internal::ScoreRowKernels>(
      isa, [&](auto k) { found = k.has_non_finite(x, stride, rows, cols); });
  return found;
}

}  // namespace sluice::cpu
