#include "sluice/ops/losses.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
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
  return can_store(labels.dtype(), static_cast<double>(ignored));
}

Tensor sum_of_classes(const Tensor& t) { return ops::sum(t, {.axes = {-1}}); }

// The losses of the samples, their weights, and the divisor of the sum of losses for a mean.
struct Losses {
  Tensor each;
  Tensor weights;  ///< Empty: 1 for each sample.
  Tensor divisor;
};

// The probabilities of all classes are given. The mean is over samples.
Losses losses_of_probabilities(const Tensor& log_probs, const Tensor& factors, const Tensor& labels,
                               double smoothing) {
  const double share = smoothing / static_cast<double>(log_probs.dim(-1));
  const Tensor target = smoothing == 0 ? labels : labels * (1 - smoothing) + share;
  const Tensor each = -sum_of_classes(target * (log_probs * factors));
  return {each, {}, ops::scalar_like(each, static_cast<double>(each.shape().elements()))};
}

// Sets the value of each ignored sample to 0.
Tensor counted(const Tensor& t, const Tensor& labels, int64_t ignored) {
  if (!can_be(labels, ignored)) return t;
  return ops::where(ops::not_equal(labels, static_cast<double>(ignored)), t, 0.0);
}

// The class of each sample is given. The mean is divided by the factors of the samples' classes.
Losses losses_of_labels(const Tensor& log_probs, const Tensor& factors, const Tensor& labels,
                        const CrossEntropyOptions& o) {
  const Tensor own = ops::nll_loss(log_probs, labels,
                                   {.reduction = ops::LossReduction::kNone,
                                    .has_ignore_index = true,
                                    .ignore_index = o.ignore_index,
                                    .log_prob = true});
  const Tensor factor =
      counted(ops::gather(factors, labels, {.zero_out_of_range = true}), labels, o.ignore_index);
  Tensor each = own * factor;
  if (o.label_smoothing > 0) {
    const double share = o.label_smoothing / static_cast<double>(log_probs.dim(-1));
    each = each * (1 - o.label_smoothing) -
           counted(sum_of_classes(log_probs * factors), labels, o.ignore_index) * share;
  }
  return {each, factor, ops::sum(factor)};
}

// Whether ops::cross_entropy computes the loss.
bool is_plain(const Tensor& labels, const CrossEntropyOptions& o) {
  return o.class_weights.empty() && o.label_smoothing == 0 && !is_float(labels.dtype());
}

void check_shapes(const Tensor& logits, const Tensor& labels) {
  require(logits.rank() >= 1, "CrossEntropyLoss: logits must have an axis of classes, got '{}' {}",
          logits.name(), to_string(logits.spec()));
  require(!is_float(labels.dtype()) || labels.spec() == logits.spec(),
          "CrossEntropyLoss: probabilities of classes must be {} like the logits, got '{}' {}",
          to_string(logits.spec()), labels.name(), to_string(labels.spec()));
}

// Returns the losses that ops::cross_entropy does not compute. `x` has the classes as its last
// axis.
Losses losses_of(const Tensor& x, const Tensor& labels, const CrossEntropyOptions& o) {
  const int64_t classes = x.dim(-1);
  std::vector<double> weights = o.class_weights;
  if (weights.empty()) weights.assign(static_cast<size_t>(classes), 1);
  require(static_cast<int64_t>(weights.size()) == classes,
          "CrossEntropyLoss: class_weights must have one number for each of {} classes, got {}",
          classes, weights.size());
  const HostTensor values = HostTensor::of<double>({classes}, f64, weights).cast(x.dtype());
  const Tensor factors = x.graph().constant(values, "class_weights");
  const Tensor log_probs = ops::log_softmax(x);
  return is_float(labels.dtype())
             ? losses_of_probabilities(log_probs, factors, classes_last(labels), o.label_smoothing)
             : losses_of_labels(log_probs, factors, labels, o);
}

}  // namespace

CrossEntropyLoss::CrossEntropyLoss(CrossEntropyOptions options) : options_(std::move(options)) {
  require(options_.label_smoothing >= 0 && options_.label_smoothing <= 1,
          "CrossEntropyLoss: label_smoothing must be in [0, 1], got {}", options_.label_smoothing);
}

Tensor CrossEntropyLoss::build(Builder&, Tensor logits, Tensor labels) const {
  const CrossEntropyOptions& o = options_;
  check_shapes(logits, labels);
  const Tensor x = classes_last(logits);
  if (is_plain(labels, o)) {
    return ops::cross_entropy(
        x, labels,
        {.reduction = o.reduction, .has_ignore_index = true, .ignore_index = o.ignore_index});
  }
  const Losses losses = losses_of(x, labels, o);
  if (o.reduction == ops::LossReduction::kNone) return losses.each;
  const Tensor total = ops::sum(losses.each);
  if (o.reduction == ops::LossReduction::kSum) return total;
  return total / ops::where(ops::equal(losses.divisor, 0.0), 1.0, losses.divisor);
}

CrossEntropyLoss::Sum CrossEntropyLoss::sum(Tensor logits, Tensor labels, double factor) const {
  check_shapes(logits, labels);
  const Tensor x = classes_last(logits);
  const auto samples = [&](const Tensor& t) {
    return t.graph().scalar(static_cast<double>(t.shape().elements()), f32, "samples");
  };
  if (is_plain(labels, options_)) {
    const int64_t ignored = options_.ignore_index;
    const auto [loss, gradient] =
        ops::cross_entropy_with_grad(x, labels,
                                     {.reduction = ops::LossReduction::kSum,
                                      .has_ignore_index = true,
                                      .ignore_index = ignored,
                                      .loss_grad = factor});
    const Tensor weight =
        can_be(labels, ignored)
            ? ops::sum(ops::cast(ops::not_equal(labels, static_cast<double>(ignored)), f32))
            : samples(labels);
    return {loss, weight, {{x, gradient}}};
  }
  const Losses losses = losses_of(x, labels, options_);
  const Tensor weight =
      losses.weights.valid() ? ops::sum(ops::cast(losses.weights, f32)) : samples(losses.each);
  return {ops::sum(losses.each), weight, {}};
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
