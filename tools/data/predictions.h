#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sluice/data/samples.h"
#include "sluice/train/trainer.h"
#include "tools/options.h"

namespace sluice::tool {

/// Called after each batch with the number of batches that are done.
using AfterBatch = std::function<void(int64_t done)>;

/// Runs the program "eval" on every sample of `inputs`, f32 (n, …), in their order. The last batch
/// is filled with the first samples again, whose predictions are discarded. Returns by name the
/// predictions that have a row for each sample, with n as first axis. Error{kUsage} if there is
/// none, or if the samples have another number of elements than the model's input.
std::vector<NamedArray> predict(train::Trainer& trainer, const HostTensor& inputs,
                                const AfterBatch& after_batch = nullptr);

/// Returns the column of the largest element of each row: (n, classes) f32 to (n) i32.
HostTensor classes_of(const HostTensor& scores);

/// The quality of a model on test samples.
struct TestResult {
  double value = 0;
  models::Loss loss = models::Loss::kCrossEntropy;  ///< The loss of the model.

  /// "accuracy", a percentage of the samples, or "mean_squared_error".
  std::string key() const;
  /// The line of a report: "accuracy 97.20 %".
  std::string text() const;
};

/// Tests a model on every sample: counts the right classes, or computes the mean of the squared
/// differences of all elements of all targets.
TestResult test(train::Trainer& trainer, models::Loss loss, const data::Samples& samples,
                const AfterBatch& after_batch);

}  // namespace sluice::tool
