#include "sluice/ops/normalization.h"

#include "sluice/cpu/fused/row_op.h"
#include "sluice/cpu/simd/norm.h"

namespace sluice::cpu {
namespace {

struct LayerNorm {
  double epsilon = 0;
  bool weighted = false;
  bool biased = false;
};

void run_layer_norm(const void* options, const RowOp::Part& p) {
  const auto& o = *static_cast<const LayerNorm*>(options);
  layer_norm_rows({p.rows, p.cols, p.inputs[0].step}, p.in(0, 0), o.weighted ? p.in(1, 0) : nullptr,
                  o.biased ? p.in(2, 0) : nullptr, o.epsilon, p.out(0), p.result.step);
}

void run_layer_norm_grad(const void* options, const RowOp::Part& p) {
  const auto& o = *static_cast<const LayerNorm*>(options);
  layer_norm_grad_rows({p.rows, p.cols, p.inputs[1].step}, p.in(0, 0), p.inputs[0].step, p.in(1, 0),
                       o.weighted ? p.in(2, 0) : nullptr, o.epsilon, p.out(0), p.result.step);
}

}  // namespace

std::optional<RowOp::Kernel> layer_norm_row_op(const OpView& op) {
  using Operand = RowOp::Operand;
  const bool forward = &op.def() == &ops::layer_norm_def();
  if (!forward && &op.def() != &ops::layer_norm_grad_def()) return std::nullopt;
  const int rows = forward ? 1 : 2;  // Operands with rows; weight and bias follow.
  RowOp::Kernel kernel;
  kernel.inputs.assign(static_cast<size_t>(op.inputs()), Operand::kShared);
  std::fill_n(kernel.inputs.begin(), rows, Operand::kRows);
  kernel.run = forward ? run_layer_norm : run_layer_norm_grad;
  kernel.options = std::make_shared<const LayerNorm>(LayerNorm{
      op.options<ops::LayerNormOptions>().epsilon, op.inputs() > rows, op.inputs() > rows + 1});
  return kernel;
}

}  // namespace sluice::cpu
