#pragma once
#include <algorithm>
#include <limits>

#include "sluice/base/reduce.h"
#include "sluice/ir/op_def.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/scalar_math.h"

/// Labels and row formulas for the loss kernels of the reference and of the devices.
namespace sluice::ops {

/// The labels of a loss; knows which samples count. It does not copy the labels, so that a step
/// does not allocate memory.
class Labels {
 public:
  /// `data` points to `size` labels, int32 if dtype is i32, else uint32.
  template <typename Options>
  Labels(const void* data, DType dtype, int64_t size, int64_t classes, const Options& o)
      : size_(size), classes_(classes), has_ignore_(o.has_ignore_index), ignore_(o.ignore_index) {
    if (dtype == i32) {
      signed_ = static_cast<const int32_t*>(data);
    } else {
      unsigned_ = static_cast<const uint32_t*>(data);
    }
    for (int64_t i = 0; i < size_; ++i) counted_ += !ignored((*this)[i]);
  }
  template <typename Options>
  Labels(const KernelArgs& k, int input, int64_t classes, const Options& o)
      : Labels(k.in_dtype(input) == i32 ? static_cast<const void*>(k.in<int32_t>(input).data())
                                        : k.in<uint32_t>(input).data(),
               k.in_dtype(input), k.op().input(input).elements(), classes, o) {}

  int64_t size() const { return size_; }
  int64_t operator[](int64_t i) const {
    // A conditional expression over both types would be unsigned and lose the sign of int32.
    if (signed_ != nullptr) return signed_[i];
    return unsigned_[i];
  }
  bool ignored(int64_t label) const { return has_ignore_ && label == ignore_; }
  bool valid(int64_t label) const { return label >= 0 && label < classes_; }
  /// Whether sample i has a class: its label is valid and is not ignored.
  bool counts(int64_t i) const { return !ignored((*this)[i]) && valid((*this)[i]); }
  /// Divisor of the sum for a mean: the samples that are not ignored, but at least 1. The mean is
  /// then 0 if all samples are ignored.
  int64_t divisor() const { return counted_ > 0 ? counted_ : 1; }

 private:
  const int32_t* signed_ = nullptr;
  const uint32_t* unsigned_ = nullptr;
  int64_t size_;
  int64_t classes_;
  bool has_ignore_;
  int64_t ignore_;
  int64_t counted_ = 0;
};

/// Raises a probability to at least the smallest normal float32.
template <typename T>
T at_least_normal(T p) {
  return math::max(p, static_cast<T>(std::numeric_limits<float>::min()));
}

/// Returns the loss of sample i; `probs` is the row of its probabilities.
template <typename T>
T sample_loss(const Labels& labels, int64_t i, const T* probs, bool log_prob) {
  const int64_t label = labels[i];
  if (labels.ignored(label)) return 0;
  if (!labels.valid(label)) return std::numeric_limits<T>::quiet_NaN();
  return log_prob ? -probs[label] : -math::log(at_least_normal(probs[label]));
}

/// Returns the mean or the sum of the losses of the samples; `one(i)` is the loss of sample i.
template <typename T, typename One>
T total_loss(const Labels& labels, LossReduction reduction, One one) {
  const T total = canonical_sum<T>(labels.size(), one);
  return reduction == LossReduction::kSum ? total : total / static_cast<T>(labels.divisor());
}

/// Writes the result of nll_loss, from rows of `classes` probabilities: one element, or one per
/// sample for kNone.
template <typename T>
void write_loss(const Labels& labels, LossReduction reduction, const T* probs, int64_t classes,
                bool log_prob, T* loss) {
  const auto one = [&](int64_t i) { return sample_loss(labels, i, probs + i * classes, log_prob); };
  if (reduction == LossReduction::kNone) {
    for (int64_t i = 0; i < labels.size(); ++i) loss[i] = one(i);
  } else {
    *loss = total_loss<T>(labels, reduction, one);
  }
}

/// Returns the factor of the probabilities in nll_loss_with_softmax_grad.
template <typename T>
T softmax_grad_scale(const Labels& labels, const NllSoftmaxGradOptions& options) {
  const auto scale = static_cast<T>(options.loss_grad);
  return options.reduction == LossReduction::kMean ? scale / static_cast<T>(labels.divisor())
                                                   : scale;
}

/// Completes row i of a gradient. Writes the element at the label, or the whole row if sample i has
/// no class: 0 if it is ignored, else NaN.
template <typename T>
void finish_grad_row(const Labels& labels, int64_t i, int64_t classes, T at_label, T* dx) {
  if (labels.counts(i)) {
    dx[labels[i]] = at_label;
  } else {
    std::fill_n(dx, classes,
                labels.ignored(labels[i]) ? T{0} : std::numeric_limits<T>::quiet_NaN());
  }
}

/// Computes row i of nll_softmax_grad into `dx`, which may be `probs`. `multiply(probs, scale, dx)`
/// must write the row probs·scale.
template <typename T, typename Multiply>
void softmax_grad_row(const Labels& labels, int64_t i, int64_t classes, T scale, const T* probs,
                      T* dx, Multiply multiply) {
  const T at_label = labels.counts(i) ? (probs[labels[i]] - 1) * scale : T{0};
  multiply(probs, scale, dx);
  finish_grad_row(labels, i, classes, at_label, dx);
}

/// Computes row i of nll_grad into `dx`. `grad` is the gradient of the loss. `probs` may be `dx`,
/// or null for log-probabilities.
template <typename T>
void nll_grad_row(const Labels& labels, int64_t i, LossReduction reduction, T grad, const T* probs,
                  int64_t classes, T* dx) {
  T g = -grad;
  if (reduction == LossReduction::kMean) g = g / static_cast<T>(labels.divisor());
  if (probs != nullptr && labels.counts(i)) g = g / at_least_normal(probs[labels[i]]);
  std::fill_n(dx, classes, T{0});
  finish_grad_row(labels, i, classes, g, dx);
}

}  // namespace sluice::ops
