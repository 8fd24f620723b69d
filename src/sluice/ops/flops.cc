#include "sluice/ops/flops.h"

namespace sluice {

double flops_of(const OpView& op) {
  if (op.def().flops != nullptr) return op.def().flops(op);
  return op.outputs() == 0
             ? 0
             : op.def().flops_per_element * static_cast<double>(op.output(0).elements());
}

}  // namespace sluice
