#pragma once
#include "sluice/nn/module.h"
#include "sluice/ops/losses.h"

namespace sluice::nn {

/// Softmax cross entropy of logits (…, classes) and int32 labels (…).
class CrossEntropy : public Module {
 public:
  explicit CrossEntropy(ops::NllLossOptions options = {}) : options_(options) {}
  Tensor build(Builder& b, Tensor logits, Tensor labels) const;

 private:
  ops::NllLossOptions options_;
};

/// Mean or sum of (prediction - target)² over all elements; with kNone, the value of each element.
class SquaredError : public Module {
 public:
  explicit SquaredError(ops::LossReduction reduction = ops::LossReduction::kMean)
      : reduction_(reduction) {}
  Tensor build(Builder& b, Tensor prediction, Tensor target) const;

 private:
  ops::LossReduction reduction_;
};

}  // namespace sluice::nn
