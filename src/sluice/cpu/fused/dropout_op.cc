#include "sluice/cpu/fused/dropout_op.h"

namespace sluice::cpu {

std::optional<DropoutOp> DropoutOp::of(const OpView& op) {
  if (&op.def() != &ops::dropout_def()) return std::nullopt;
  return DropoutOp(op.options<ops::DropoutOptions>());
}

}  // namespace sluice::cpu
