#pragma once
#include <utility>

#include "sluice/ops/op.h"

namespace sluice::ops {

/// How the losses of the samples become one.
enum class LossReduction : int32_t {
  kMean,  ///< Sum divided by the number of samples that are not ignored; 0 if all are.
  kSum,
  kNone,  ///< One loss a sample.
};

struct NllLossOptions {
  LossReduction reduction = LossReduction::kMean;
  bool has_ignore_index = false;
  int64_t ignore_index =
      0;  ///< Samples with this label have loss and gradient 0, if has_ignore_index.
  bool log_prob = false;  ///< The operand holds log-probabilities.
  static constexpr auto fields =
      std::tuple{field("reduction", &NllLossOptions::reduction),
                 field("has_ignore_index", &NllLossOptions::has_ignore_index),
                 field("ignore_index", &NllLossOptions::ignore_index),
                 field("log_prob", &NllLossOptions::log_prob)};
};

struct NllGradOptions {
  LossReduction reduction = LossReduction::kMean;
  bool has_ignore_index = false;
  int64_t ignore_index = 0;
  int64_t classes = 0;  ///< Size of the last axis of the forward operand.
  static constexpr auto fields =
      std::tuple{field("reduction", &NllGradOptions::reduction),
                 field("has_ignore_index", &NllGradOptions::has_ignore_index),
                 field("ignore_index", &NllGradOptions::ignore_index),
                 field("classes", &NllGradOptions::classes)};
};

struct NllSoftmaxGradOptions {
  LossReduction reduction = LossReduction::kMean;
  bool has_ignore_index = false;
  int64_t ignore_index = 0;
  double loss_grad =
      1.0;  ///< Gradient of the (unscaled) loss that the returned gradient starts from.
  static constexpr auto fields =
      std::tuple{field("reduction", &NllSoftmaxGradOptions::reduction),
                 field("has_ignore_index", &NllSoftmaxGradOptions::has_ignore_index),
                 field("ignore_index", &NllSoftmaxGradOptions::ignore_index),
                 field("loss_grad", &NllSoftmaxGradOptions::loss_grad)};
};

struct NllTotalOptions {
  LossReduction reduction = LossReduction::kMean;  ///< Not kNone.
  bool has_ignore_index = false;
  int64_t ignore_index = 0;
  static constexpr auto fields =
      std::tuple{field("reduction", &NllTotalOptions::reduction),
                 field("has_ignore_index", &NllTotalOptions::has_ignore_index),
                 field("ignore_index", &NllTotalOptions::ignore_index)};
};

const OpDef& nll_loss_def();
const OpDef& nll_grad_def();
const OpDef& nll_loss_with_softmax_grad_def();
/// What losses and their gradient are made of, each with one result (OpDef::parts).
const OpDef& nll_total_def();
const OpDef& nll_softmax_grad_def();

/// -log p[label] of each sample. `probs` is (..., classes), `labels` (...) int32 or uint32. A
/// probability below the least normal float32 counts as that, so the loss is at most 87.34. A label
/// outside [0, classes) that is not the ignored one makes its loss and gradient NaN, so that it is
/// noticed.
Tensor nll_loss(TensorArg probs, TensorArg labels, const NllLossOptions& options = {});

/// The same loss of probabilities that a softmax made, and its gradient with respect to the
/// softmax's operand: (probs - onehot(labels))·loss_grad, divided as the loss is. Both have the
/// dtype of `probs`.
std::pair<Tensor, Tensor> nll_loss_with_softmax_grad(TensorArg probs, TensorArg labels,
                                                     const NllSoftmaxGradOptions& options = {});

/// Negative log likelihood of the softmax of `logits` over the last axis, computed from
/// log-probabilities; `options.log_prob` is ignored.
Tensor cross_entropy(TensorArg logits, TensorArg labels, const NllLossOptions& options = {});

/// The loss, and its gradient with respect to `logits` times `options.loss_grad`: softmax and
/// nll_loss_with_softmax_grad.
std::pair<Tensor, Tensor> cross_entropy_with_grad(TensorArg logits, TensorArg labels,
                                                  const NllSoftmaxGradOptions& options = {});

}  // namespace sluice::ops
