#include "sluice/cpu/kernels/kernel_list.h"

#include <array>

namespace sluice::cpu {

std::span<const CpuKernel> kernel_list() {
  static const std::array list{
      gemm_kernel(), elementwise_kernel(), cast_kernel(), reduce_kernel(), chunks_kernel(),
      rows_kernel(), loss_kernel(),        fill_kernel(), slice_kernel(),  reference_kernel()};
  return list;
}

double flops_of(const OpView& op) {
  if (op.def().flops != nullptr) return op.def().flops(op);
  return op.outputs() == 0
             ? 0
             : op.def().flops_per_element * static_cast<double>(op.output(0).elements());
}

}  // namespace sluice::cpu
