#pragma once
#include <algorithm>
#include <limits>

#include "sluice/base/reduce.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/scalar_math.h"

/// What the reference kernels of the losses and the devices' share: labels, and the formulas of a row.
namespace sluice::ops {

/// The labels of a loss and which of them count. Reads them where they are: a step allocates nothing.
class Labels {
 public:
  /// `data` are `size` labels, int32 (dtype i32) or uint32.
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
  /// Whether sample i has a class.
  bool counts(int64_t i) const { return !ignored((*this)[i]) && valid((*this)[i]); }
  /// What the sum is divided by for a mean; 1 rather than 0, so that ignoring all gives 0.
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

/// The least that a probability counts as.
template <typename T>
T at_least_normal(T p) {
  return math::max(p, static_cast<T>(std::numeric_limits<float>::min()));
}

/// The loss of sample i, from its row of probabilities.
template <typename T>
T sample_loss(const Labels& labels, int64_t i, const T* probs, bool log_prob) {
  const int64_t label = labels[i];
  if (labels.ignored(label)) return 0;
  if (!labels.valid(label)) return std::numeric_limits<T>::quiet_NaN();
  return log_prob ? -probs[label] : -math::log(at_least_normal(probs[label]));
}

/// The mean or the sum of the samples' losses; `one(i)` is that of sample i.
template <typename T, typename One>
T total_loss(const Labels& labels, LossReduction reduction, One one) {
  const T total = canonical_sum<T>(labels.size(), one);
  return reduction == LossReduction::kSum ? total : total / static_cast<T>(labels.divisor());
}

/// The loss of nll_loss, from rows of `classes` probabilities: one, or one a sample.
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

/// What nll_loss_with_softmax_grad multiplies probabilities with.
template <typename T>
T softmax_grad_scale(const Labels& labels, const NllSoftmaxGradOptions& options) {
  const auto scale = static_cast<T>(options.loss_grad);
  return options.reduction == LossReduction::kMean ? scale / static_cast<T>(labels.divisor())
                                                   : scale;
}

/// Row i of a gradient that is complete but for the element at the label and for samples without a class.
template <typename T>
void finish_grad_row(const Labels& labels, int64_t i, int64_t classes, T at_label, T* dx) {
  if (labels.counts(i)) {
    dx[labels[i]] = at_label;
  } else {
    std::fill_n(dx, classes,
                labels.ignored(labels[i]) ? T{0} : std::numeric_limits<T>::quiet_NaN());
  }
}

/// Row i of nll_softmax_grad, but for the elements that are probs·scale: `multiply` makes those. `dx` may be `probs`.
template <typename T, typename Multiply>
void softmax_grad_row(const Labels& labels, int64_t i, int64_t classes, T scale, const T* probs,
                      T* dx, Multiply multiply) {
  const T at_label = labels.counts(i) ? (probs[labels[i]] - 1) * scale : T{0};
  multiply(probs, scale, dx);
  finish_grad_row(labels, i, classes, at_label, dx);
}

/// Row i of nll_grad, whose loss has the gradient `grad`; `probs` may be null (log-probabilities), or `dx`.
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
