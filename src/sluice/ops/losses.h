#pragma once
#include <utility>

#include "sluice/ops/op.h"

namespace sluice::ops {

/// How the losses of the samples are reduced to one.
enum class LossReduction : int32_t {
  kMean,  ///< Sum divided by the number of samples that are not ignored; 0 if all are ignored.
  kSum,
  kNone,  ///< One loss per sample.
};
constexpr std::string_view words_of(LossReduction) { return "mean,sum,none"; }

struct NllLossOptions {
  LossReduction reduction = LossReduction::kMean;
  bool has_ignore_index = false;
  int64_t ignore_index = 0;
  bool log_prob = false;
  static auto fields(auto&& use) {
    return use(
        field("reduction", &NllLossOptions::reduction,
              "mean divides the sum by the number of samples that are not ignored; none returns a "
              "loss for each sample."),
        field("has_ignore_index", &NllLossOptions::has_ignore_index,
              "Whether ignore_index is a label."),
        field("ignore_index", &NllLossOptions::ignore_index,
              "If has_ignore_index: label of samples with loss and gradient 0."),
        field("log_prob", &NllLossOptions::log_prob, "The operand holds log-probabilities."));
  }
};

struct NllGradOptions {
  LossReduction reduction = LossReduction::kMean;
  bool has_ignore_index = false;
  int64_t ignore_index = 0;
  int64_t classes = 0;
  static auto fields(auto&& use) {
    return use(field("reduction", &NllGradOptions::reduction,
                     "mean divides the sum by the number of samples that are not ignored; none "
                     "returns a loss for each sample."),
               field("has_ignore_index", &NllGradOptions::has_ignore_index,
                     "Whether ignore_index is a label."),
               field("ignore_index", &NllGradOptions::ignore_index,
                     "If has_ignore_index: label of samples with loss and gradient 0."),
               field("classes", &NllGradOptions::classes,
                     "Size of the last axis of the forward operand."));
  }
};

struct NllSoftmaxGradOptions {
  LossReduction reduction = LossReduction::kMean;
  bool has_ignore_index = false;
  int64_t ignore_index = 0;
  double loss_grad = 1.0;
  static auto fields(auto&& use) {
    return use(field("reduction", &NllSoftmaxGradOptions::reduction,
                     "mean divides the sum by the number of samples that are not ignored; none "
                     "returns a loss for each sample."),
               field("has_ignore_index", &NllSoftmaxGradOptions::has_ignore_index,
                     "Whether ignore_index is a label."),
               field("ignore_index", &NllSoftmaxGradOptions::ignore_index,
                     "If has_ignore_index: label of samples with loss and gradient 0."),
               field("loss_grad", &NllSoftmaxGradOptions::loss_grad,
                     "Factor of the returned gradient: the gradient of the loss. The loss itself "
                     "is not scaled."));
  }
};

struct NllTotalOptions {
  LossReduction reduction = LossReduction::kMean;
  bool has_ignore_index = false;
  int64_t ignore_index = 0;
  static auto fields(auto&& use) {
    return use(field("reduction", &NllTotalOptions::reduction, "Not none."),
               field("has_ignore_index", &NllTotalOptions::has_ignore_index,
                     "Whether ignore_index is a label."),
               field("ignore_index", &NllTotalOptions::ignore_index,
                     "If has_ignore_index: label of samples with loss and gradient 0."));
  }
};

const OpDef& nll_loss_def();
const OpDef& nll_grad_def();
const OpDef& nll_loss_with_softmax_grad_def();
/// Parts of the losses and of their gradient (OpDef::parts), each with one result.
const OpDef& nll_total_def();
const OpDef& nll_softmax_grad_def();

/// Returns -log p[label] of each sample, reduced by `options.reduction`. `probs` has shape (...,
/// classes); `labels` has shape (...) and is int32 or uint32. A probability below the smallest
/// normal float32 counts as that number, so the loss is at most 87.34. A label outside [0, classes)
/// makes its loss and gradient NaN, unless it is the ignored label; the mistake is thus noticed.
Tensor nll_loss(TensorArg probs, TensorArg labels, const NllLossOptions& options = {});

/// Returns nll_loss of the probabilities that a softmax computed, and the gradient of its operand:
/// (probs - onehot(labels))·loss_grad. The gradient is divided as the loss is. Both have the dtype
/// of `probs`.
std::pair<Tensor, Tensor> nll_loss_with_softmax_grad(TensorArg probs, TensorArg labels,
                                                     const NllSoftmaxGradOptions& options = {});

/// Returns the negative log likelihood of the softmax of `logits` over the last axis, computed from
/// log-probabilities. `options.log_prob` is ignored.
Tensor cross_entropy(TensorArg logits, TensorArg labels, const NllLossOptions& options = {});

/// Returns the loss and the gradient of `logits` times `options.loss_grad`: softmax, then
/// nll_loss_with_softmax_grad.
std::pair<Tensor, Tensor> cross_entropy_with_grad(TensorArg logits, TensorArg labels,
                                                  const NllSoftmaxGradOptions& options = {});

}  // namespace sluice::ops
