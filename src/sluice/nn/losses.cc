#include "sluice/nn/losses.h"

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/reductions.h"

namespace sluice::nn {

Tensor CrossEntropy::build(Builder&, Tensor logits, Tensor labels) const {
  return ops::cross_entropy(logits, labels, options_);
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
