#pragma once
#include <cstddef>

#include "sluice/train/model_state.h"

namespace sluice::train {

/// The losses of a call of a training program: means over all its micro-batches, whatever results
/// the call returns (Output). Micro-batches count by their total weights (Loss::total_weight) if
/// the losses have one. A model of programs without Options::loss_sums has the means of the
/// micro-batches that the call returns.
class CallLoss {
 public:
  CallLoss(const Training& training, const internal::ModelCalls& calls)
      : training_(training), calls_(calls) {}

  /// Returns the mean of a loss in the last call, by its index in Training::losses; 0 without any
  /// weight.
  double mean(size_t loss) const;
  /// Returns the sum of the means of all losses with the losses' weights.
  double total() const;

 private:
  const Training& training_;
  const internal::ModelCalls& calls_;
};

}  // namespace sluice::train
