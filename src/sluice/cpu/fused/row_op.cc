#include "sluice/cpu/fused/row_op.h"

#include "sluice/cpu/simd/conversions.h"

namespace sluice::cpu {

std::optional<RowOp> RowOp::of(const OpView& op) {
  RowOp own;
  for (const FindRowKernel find : row_kernel_list()) {
    auto kernel = find(op);
    if (!kernel) continue;
    own.kernel_ = *std::move(kernel);
    break;
  }
  if (own.kernel_.run == nullptr) return std::nullopt;
  const Shape* space = own.reduces_rows() ? nullptr : &op.output(0).shape;
  for (int i = 0; i < op.inputs(); ++i) {
    const Operand operand = at(own.inputs(), i);
    if (operand == Operand::kLabels) {
      own.labels_input_ = i;
      own.label_dtype_ = op.input(i).dtype;
    } else if (!computes_in_f32(op.input(i).dtype)) {
      return std::nullopt;
    }
    if (operand == Operand::kRows && space == nullptr) space = &op.input(i).shape;
  }
  if (space == nullptr || space->elements() == 0) return std::nullopt;
  own.cols_ = space->dim(-1);
  own.rows_ = space->elements() / own.cols_;
  return own;
}

void RowOp::run(RowBlock part) const {
  part.at_once = part.rows;
  for (size_t i = 0; i < kernel_.inputs.size(); ++i) {
    if (kernel_.inputs[i] == Operand::kRows && part.inputs[i].step != part.cols) part.at_once = 1;
  }
  if (part.result.step != part.cols) part.at_once = 1;
  kernel_.run(kernel_.options.get(), part);
}

std::optional<LossTotal> LossTotal::of(const OpView& op) {
  if (&op.def() != &ops::nll_total_def() || op.output(0).dtype != f32) return std::nullopt;
  LossTotal own;
  own.o_ = op.options<ops::NllTotalOptions>();
  own.samples_ = op.input(0).elements();
  own.label_dtype_ = op.input(1).dtype;
  return own;
}

}  // namespace sluice::cpu
