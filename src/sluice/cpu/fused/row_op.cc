#include "sluice/cpu/fused/row_op.h"

#include <algorithm>

#include "sluice/cpu/simd/conversions.h"
#include "sluice/cpu/simd/reduce.h"
#include "sluice/cpu/simd/vector_kernels.h"
#include "sluice/ops/functors.h"
#include "sluice/ops/softmax.h"

namespace sluice::cpu {
namespace {

bool is_along_last_axis(const OpView& op) {
  const int rank = op.input(0).shape.rank();
  if (rank == 0) return false;
  return normalize_axis(op.options<ops::AxisOptions>().axis, rank, "softmax") == rank - 1;
}

}  // namespace

void RowOp::set(Kind kind, std::initializer_list<Operand> inputs) {
  kind_ = kind;
  std::copy(inputs.begin(), inputs.end(), inputs_.begin());
  input_count_ = inputs.size();
}

std::optional<RowOp> RowOp::of(const OpView& op) {
  RowOp own;
  const OpDef* const def = &op.def();
  const auto take_options = [&](const auto& o) {
    own.loss_ = {o.reduction, o.has_ignore_index, o.ignore_index, own.loss_.loss_grad};
  };
  if (def == &ops::softmax_def()) {
    own.set(Kind::kSoftmax, {Operand::kRows});
  } else if (def == &ops::log_softmax_def()) {
    own.set(Kind::kLogSoftmax, {Operand::kRows});
  } else if (def == &ops::softmax_grad_def()) {
    own.set(Kind::kSoftmaxGrad, {Operand::kRows, Operand::kRows});
  } else if (def == &ops::log_softmax_grad_def()) {
    own.set(Kind::kLogSoftmaxGrad, {Operand::kRows, Operand::kRows});
  } else if (def == &ops::nll_loss_def()) {
    const auto o = op.options<ops::NllLossOptions>();
    if (o.reduction != ops::LossReduction::kNone) return std::nullopt;
    own.set(Kind::kLoss, {Operand::kRows, Operand::kLabels});
    own.log_prob_ = o.log_prob;
    take_options(o);
  } else if (def == &ops::nll_softmax_grad_def()) {
    own.set(Kind::kLossSoftmaxGrad, {Operand::kRows, Operand::kLabels});
    own.loss_ = op.options<ops::NllSoftmaxGradOptions>();
  } else if (def == &ops::nll_grad_def()) {
    const auto o = op.options<ops::NllGradOptions>();
    const bool each = o.reduction == ops::LossReduction::kNone;
    own.set(Kind::kLossGrad,
            {each ? Operand::kSamples : Operand::kValue, Operand::kLabels, Operand::kRows});
    own.input_count_ = static_cast<size_t>(op.inputs());
    take_options(o);
  } else {
    return std::nullopt;
  }
  const bool has_labels = own.kind_ >= Kind::kLoss;
  if (!has_labels && !is_along_last_axis(op)) return std::nullopt;
  for (int i = 0; i < op.inputs(); ++i) {
    const bool labels = own.inputs_[static_cast<size_t>(i)] == Operand::kLabels;
    if (!labels && !computes_in_f32(op.input(i).dtype)) return std::nullopt;
  }
  const Shape& space = own.kind_ == Kind::kLossGrad ? op.output(0).shape : op.input(0).shape;
  if (space.elements() == 0) return std::nullopt;
  own.classes_ = space.dim(-1);
  own.samples_ = space.elements() / own.classes_;
  if (has_labels) own.label_dtype_ = op.input(1).dtype;
  return own;
}

void RowOp::run(const ops::Labels* labels, const Rows* inputs, Rows result, int64_t first,
                int64_t rows, int64_t cols) const {
  const auto in = [&](size_t i, int64_t row) { return inputs[i].data + row * inputs[i].step; };
  const auto out = [&](int64_t row) { return result.data + row * result.step; };
  // Compute all rows in one call if they are contiguous.
  int64_t at_once = rows;
  for (size_t i = 0; i < input_count_; ++i) {
    if (inputs_[i] == Operand::kRows && inputs[i].step != cols) at_once = 1;
  }
  if (result.step != cols) at_once = 1;
  switch (kind_) {
    case Kind::kSoftmax:
      for (int64_t r = 0; r < rows; r += at_once) softmax_rows(in(0, r), at_once, cols, out(r));
      return;
    case Kind::kLogSoftmax:
      for (int64_t r = 0; r < rows; r += at_once) log_softmax_rows(in(0, r), at_once, cols, out(r));
      return;
    case Kind::kSoftmaxGrad:
      for (int64_t r = 0; r < rows; r += at_once)
        softmax_grad_rows(in(0, r), in(1, r), at_once, cols, out(r));
      return;
    case Kind::kLogSoftmaxGrad:
      for (int64_t r = 0; r < rows; r += at_once)
        log_softmax_grad_rows(in(0, r), in(1, r), at_once, cols, out(r));
      return;
    case Kind::kLoss:
      for (int64_t r = 0; r < rows; ++r)
        *out(r) = ops::sample_loss(*labels, first + r, in(0, r), log_prob_);
      return;
    case Kind::kLossGrad:
      for (int64_t r = 0; r < rows; ++r) {
        ops::nll_grad_row(*labels, first + r, loss_.reduction, *in(0, r),
                          input_count_ == 3 ? in(2, r) : nullptr, cols, out(r));
      }
      return;
    case Kind::kLossSoftmaxGrad: {
      const auto scale = ops::softmax_grad_scale<float>(*labels, loss_);
      const auto multiply = [&](const float* from, const float& by, float* to) {
        map2(ops::functor::Mul{}, {from}, {&by, 0}, to, cols);
      };
      for (int64_t r = 0; r < rows; ++r)
        ops::softmax_grad_row(*labels, first + r, cols, scale, in(0, r), out(r), multiply);
      return;
    }
  }
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
