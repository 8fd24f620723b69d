#include "sluice/cpu/fused/dropout_op.h"

#include <cstring>

namespace sluice::cpu {

std::optional<DropoutOp> DropoutOp::of(const OpView& op) {
  if (&op.def() != &ops::dropout_def()) return std::nullopt;
  return DropoutOp(op.options<ops::DropoutOptions>());
}

Seed DropoutOp::seed(const std::byte* operand) {
  uint32_t words[2];
  std::memcpy(words, operand, sizeof words);
  return {words[0], words[1]};
}

}  // namespace sluice::cpu
