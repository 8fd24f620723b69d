#include "sluice/nn/layers.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/softmax.h"
#include "sluice/ops/transpose.h"

namespace sluice::nn {
namespace {

// Makes axis 1, which has the classes, the last axis.
Tensor classes_last(const Tensor& t) {
  if (t.rank() <= 2) return t;
  std::vector<int64_t> order{0};
  for (int64_t axis = 2; axis < t.rank(); ++axis) order.push_back(axis);
  order.push_back(1);
  return ops::transpose(t, order);
}

// Whether `labels` can have the label `ignored`.
bool can_be(const Tensor& labels, int64_t ignored) {
  return takes(labels.dtype(), static_cast<double>(ignored));
}

Tensor sum_of_classes(const Tensor& t) { return ops::sum(t, {.axes = {-1}}); }

// The losses of the samples, and the divisor of their sum for a mean.
struct Losses {
  Tensor each;
  Tensor divisor;
};

// The probabilities of all classes are given. The mean is over samples.
Losses losses_of_probabilities(const Tensor& log_probs, const Tensor& factors, const Tensor& labels,
                               double smoothing) {
  const double share = smoothing / static_cast<double>(log_probs.dim(-1));
  const Tensor target = smoothing == 0 ? labels : labels * (1 - smoothing) + share;
  const Tensor each = -sum_of_classes(target * (log_probs * factors));
  return {each, ops::scalar_like(each, static_cast<double>(each.shape().elements()))};
}

// The class of each sample is given. The mean is divided by the factors of the samples' classes.
Losses losses_of_labels(const Tensor& log_probs, const Tensor& factors, const Tensor& labels,
                        const CrossEntropyOptions& o) {
  const Tensor own = ops::nll_loss(log_probs, labels,
                                   {.reduction = ops::LossReduction::kNone,
                                    .has_ignore_index = true,
                                    .ignore_index = o.ignore_index,
                                    .log_prob = true});
  const auto counted = [&](const Tensor& t) {
    if (!can_be(labels, o.ignore_index)) return t;
    return ops::where(ops::not_equal(labels, static_cast<double>(o.ignore_index)), t, 0.0);
  };
  const Tensor factor = counted(ops::gather(factors, labels, {.zero_out_of_range = true}));
  Tensor each = own * factor;
  if (o.label_smoothing > 0) {
    const double share = o.label_smoothing / static_cast<double>(log_probs.dim(-1));
    each = each * (1 - o.label_smoothing) - counted(sum_of_classes(log_probs * factors)) * share;
  }
  return {each, ops::sum(factor)};
}

}  // namespace

CrossEntropyLoss::CrossEntropyLoss(CrossEntropyOptions options) : options_(std::move(options)) {
  require(options_.label_smoothing >= 0 && options_.label_smoothing <= 1,
          "CrossEntropyLoss: label_smoothing must be in [0, 1], got {}", options_.label_smoothing);
}

Tensor CrossEntropyLoss::build(Builder& b, Tensor logits, Tensor labels) const {
  const CrossEntropyOptions& o = options_;
  require(logits.rank() >= 1, "CrossEntropyLoss: logits must have an axis of classes, got '{}' {}",
          logits.name(), to_string(logits.spec()));
  const Tensor x = classes_last(logits);
  const bool probabilities = is_float(labels.dtype());
  require(!probabilities || labels.spec() == logits.spec(),
          "CrossEntropyLoss: probabilities of classes must be {} like the logits, got '{}' {}",
          to_string(logits.spec()), labels.name(), to_string(labels.spec()));
  if (o.class_weights.empty() && o.label_smoothing == 0 && !probabilities) {
    return ops::cross_entropy(
        x, labels,
        {.reduction = o.reduction, .has_ignore_index = true, .ignore_index = o.ignore_index});
  }
  const int64_t classes = x.dim(-1);
  std::vector<double> weights = o.class_weights;
  if (weights.empty()) weights.assign(static_cast<size_t>(classes), 1);
  require(static_cast<int64_t>(weights.size()) == classes,
          "CrossEntropyLoss: class_weights must have one number for each of {} classes, got {}",
          classes, weights.size());
  const HostTensor values = HostTensor::of<double>({classes}, f64, weights).cast(x.dtype());
  const Tensor factors = b.graph().constant(values, "class_weights");
  const Tensor log_probs = ops::log_softmax(x);
  const Losses losses =
      probabilities
          ? losses_of_probabilities(log_probs, factors, classes_last(labels), o.label_smoothing)
          : losses_of_labels(log_probs, factors, labels, o);
  if (o.reduction == ops::LossReduction::kNone) return losses.each;
  const Tensor total = ops::sum(losses.each);
  if (o.reduction == ops::LossReduction::kSum) return total;
  return total / ops::where(ops::equal(losses.divisor, 0.0), 1.0, losses.divisor);
}

Tensor SquaredError::build(Builder&, Tensor prediction, Tensor target) const {
  const Tensor difference = prediction - target;
  const Tensor square = difference * difference;
  switch (reduction_) {
    case ops::LossReduction::kMean:
      return ops::mean(square);
    case ops::LossReduction::kSum:
      return ops::sum(square);
    case ops::LossReduction::kNone:
      break;
  }
  return square;
}

}  // namespace sluice::nn
