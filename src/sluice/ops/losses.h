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

struct NllLossOptions {
  LossReduction reduction = LossReduction::kMean;
  bool has_ignore_index = false;
  int64_t ignore_index = 0;  ///< If has_ignore_index: label of samples with loss and gradient 0.
  bool log_prob = false;     ///< The operand holds log-probabilities.
  static auto fields(auto&& use) {
    return use(field("reduction", &NllLossOptions::reduction),
               field("has_ignore_index", &NllLossOptions::has_ignore_index),
               field("ignore_index", &NllLossOptions::ignore_index),
               field("log_prob", &NllLossOptions::log_prob));
  }
};

struct NllGradOptions {
  LossReduction reduction = LossReduction::kMean;
  bool has_ignore_index = false;
  int64_t ignore_index = 0;
  int64_t classes = 0;  ///< Size of the last axis of the forward operand.
  static auto fields(auto&& use) {
    return use(field("reduction", &NllGradOptions::reduction),
               field("has_ignore_index", &NllGradOptions::has_ignore_index),
               field("ignore_index", &NllGradOptions::ignore_index),
               field("classes", &NllGradOptions::classes));
  }
};

struct NllSoftmaxGradOptions {
  LossReduction reduction = LossReduction::kMean;
  bool has_ignore_index = false;
  int64_t ignore_index = 0;
  /// Factor of the returned gradient: the gradient of the loss. The loss itself is not scaled.
  double loss_grad = 1.0;
  static auto fields(auto&& use) {
    return use(field("reduction", &NllSoftmaxGradOptions::reduction),
               field("has_ignore_index", &NllSoftmaxGradOptions::has_ignore_index),
               field("ignore_index", &NllSoftmaxGradOptions::ignore_index),
               field("loss_grad", &NllSoftmaxGradOptions::loss_grad));
  }
};

struct NllTotalOptions {
  LossReduction reduction = LossReduction::kMean;  ///< Not kNone.
  bool has_ignore_index = false;
  int64_t ignore_index = 0;
  static auto fields(auto&& use) {
    return use(field("reduction", &NllTotalOptions::reduction),
               field("has_ignore_index", &NllTotalOptions::has_ignore_index),
               field("ignore_index", &NllTotalOptions::ignore_index));
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
