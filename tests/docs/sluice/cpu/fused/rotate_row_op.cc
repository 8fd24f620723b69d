#include <algorithm>

#include "sluice/cpu/fused/row_op.h"
#include "sluice/ops/rotate.h"

namespace sluice::cpu {
namespace {

void run_rotate(const void* options, const RowOp::RowBlock& p) {
  const int64_t shift = static_cast<const ops::RotateOptions*>(options)->shift % p.cols;
  const int64_t first = (p.cols - shift) % p.cols;  // The element that moves to the front.
  for (int64_t r = 0; r < p.rows; ++r) {
    const float* const x = p.in(0, r);
    float* const y = p.out(r);
    if (x == y) {
      std::rotate(y, y + first, y + p.cols);
    } else {
      std::rotate_copy(x, x + first, x + p.cols, y);
    }
  }
}

}  // namespace

std::optional<RowOp::Kernel> rotate_row_op(const OpView& op) {
  if (&op.def() != &ops::rotate_def()) return std::nullopt;
  return RowOp::Kernel{
      .inputs = {RowOp::Operand::kRows},
      .run = run_rotate,
      .options = std::make_shared<const ops::RotateOptions>(op.options<ops::RotateOptions>())};
}

}  // namespace sluice::cpu
