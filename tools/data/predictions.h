#pragma once
#include <functional>
#include <optional>
#include <string>

#include "sluice/data/samples.h"
#include "sluice/train/fit.h"
#include "tools/options.h"

namespace sluice::tool {

/// Returns samples as the dataset that a model with this loss reads.
data::Dataset dataset_of(models::Loss loss, data::Samples samples);

/// Returns the column of the largest element of each row: (n, classes) f32 to (n) i32.
HostTensor classes_of(const HostTensor& scores);

/// The quality of a model on test samples.
struct TestResult {
  double value = 0;
  models::Loss loss = models::Loss::kCrossEntropy;  ///< The loss of the model.
  std::optional<double> mean_loss;                  ///< Its mean, unless that is `value`.

  /// "accuracy", a percentage of the samples, or "mean_squared_error".
  std::string key() const;
  /// The line of a report: "accuracy 97.20 %".
  std::string text() const;
};

/// Tests a model on every sample: counts the right classes, or computes the mean of the squared
/// differences of all elements of all targets. Calls `after_call` after each call of the model.
TestResult test(const train::TrainingModel& model, models::Loss loss, const data::Dataset& samples,
                train::Show show, const std::function<void()>& after_call = nullptr);

}  // namespace sluice::tool
