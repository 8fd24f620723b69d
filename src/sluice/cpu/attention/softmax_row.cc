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

}  // namespace sluice::cpu
