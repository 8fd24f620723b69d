#pragma once
#include <set>
#include <string>
#include <vector>

#include "sluice/nn/update/optimizers.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// Stores the reduced gradients that Options::watch names in streams of their own
/// (Training::watched_gradients). Every replica stores the whole gradient.
class GradientWatch {
 public:
  GradientWatch(const Options& options, Training& training);

  /// Stores the gradient of a weight in its entry graph, at the first call for this weight. Returns
  /// the gradient.
  Tensor store(const std::string& key, const Tensor& gradient);
  /// Stores the gradient of one of the weights `rows`, in any graph. An update runs the rows from
  /// the last to the first. Returns the gradient.
  Tensor store_row(const std::vector<std::string>& rows, const Tensor& gradient);

 private:
  const Options& options_;
  Training& training_;
  nn::KeyMatch is_watched_;
  std::set<std::string> stored_;  ///< Weights whose gradients store() has stored.
};

}  // namespace sluice::train
