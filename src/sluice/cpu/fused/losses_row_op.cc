#include "sluice/ops/loss_rows.h"

#include "sluice/cpu/fused/row_op.h"
#include "sluice/cpu/simd/vector_kernels.h"
#include "sluice/ops/functors.h"

namespace sluice::cpu {
namespace {

using Operand = RowOp::Operand;

template <typename Options>
RowOp::Kernel kernel_of(std::vector<Operand> inputs,
                        void (*run)(const void*, const RowOp::RowBlock&), const Options& o) {
  return {.inputs = std::move(inputs),
          .run = run,
          .options = std::make_shared<const Options>(o),
          .has_ignore_index = o.has_ignore_index,
          .ignore_index = o.ignore_index};
}

void run_loss_row(const void* options, const RowOp::RowBlock& p) {
  const bool log_prob = static_cast<const ops::NllLossOptions*>(options)->log_prob;
  for (int64_t r = 0; r < p.rows; ++r)
    *p.out(r) = ops::sample_loss(*p.labels, p.first + r, p.in(0, r), log_prob);
}

template <bool kHasProbs>
void run_grad(const void* options, const RowOp::RowBlock& p) {
  const auto reduction = static_cast<const ops::NllGradOptions*>(options)->reduction;
  for (int64_t r = 0; r < p.rows; ++r) {
    ops::nll_grad_row(*p.labels, p.first + r, reduction, *p.in(0, r),
                      kHasProbs ? p.in(2, r) : nullptr, p.cols, p.out(r));
  }
}

void run_softmax_grad(const void* options, const RowOp::RowBlock& p) {
  const auto& o = *static_cast<const ops::NllSoftmaxGradOptions*>(options);
  const auto scale = ops::softmax_grad_scale<float>(*p.labels, o);
  const auto multiply = [&](const float* from, const float& by, float* to) {
    map2(ops::functor::Mul{}, {from}, {&by, 0}, to, p.cols);
  };
  for (int64_t r = 0; r < p.rows; ++r)
    ops::softmax_grad_row(*p.labels, p.first + r, p.cols, scale, p.in(0, r), p.out(r), multiply);
}

}  // namespace

std::optional<RowOp::Kernel> losses_row_op(const OpView& op) {
  const OpDef* const def = &op.def();
  if (def == &ops::nll_loss_def()) {
    const auto o = op.options<ops::NllLossOptions>();
    if (o.reduction != ops::LossReduction::kNone) return std::nullopt;
    auto kernel = kernel_of({Operand::kRows, Operand::kLabels}, run_loss_row, o);
    kernel.reduces_rows = true;
    return kernel;
  }
  if (def == &ops::nll_softmax_grad_def()) {
    return kernel_of({Operand::kRows, Operand::kLabels}, run_softmax_grad,
                     op.options<ops::NllSoftmaxGradOptions>());
  }
  if (def != &ops::nll_grad_def()) return std::nullopt;
  const auto o = op.options<ops::NllGradOptions>();
  const bool each = o.reduction == ops::LossReduction::kNone;
  std::vector<Operand> inputs{each ? Operand::kSamples : Operand::kShared, Operand::kLabels};
  const bool has_probs = op.inputs() == 3;
  if (has_probs) inputs.push_back(Operand::kRows);
  return kernel_of(std::move(inputs), has_probs ? run_grad<true> : run_grad<false>, o);
}

}  // namespace sluice::cpu
