#include "sluice/cpu/fused/row_op.h"
#include "sluice/cpu/simd/norm.h"
#include "sluice/ops/normalization.h"

namespace sluice::cpu {
namespace {

void run_rms_norm(const void* options, const RowOp::RowBlock& p) {
  const auto& o = *static_cast<const ops::RmsNormOptions*>(options);
  rms_norm_rows({p.rows, p.cols, p.inputs[0].step}, p.in(0, 0), p.inputs[1].data, o.epsilon,
                p.out(0), p.result.step);
}

}  // namespace

std::optional<RowOp::Kernel> rms_norm_row_op(const OpView& op) {
  // Makes no definition of an operator that few programs need.
  if (op.def().type != "RmsNorm") return std::nullopt;
  RowOp::Kernel kernel{
      .inputs = {RowOp::Operand::kRows},
      .run = run_rms_norm,
      .options = std::make_shared<const ops::RmsNormOptions>(op.options<ops::RmsNormOptions>())};
  kernel.inputs.resize(static_cast<size_t>(op.inputs()), RowOp::Operand::kShared);
  return kernel;
}

}  // namespace sluice::cpu
