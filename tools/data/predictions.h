#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sluice/data/samples.h"
#include "sluice/train/fit.h"
#include "tools/json_record.h"
#include "tools/options.h"

namespace sluice::tool {

/// Returns samples as the dataset that a model with this loss reads.
data::Dataset dataset_of(models::Loss loss, data::Samples samples);

/// Returns the column of the largest element of each row: (n, classes) f32 to (n) i32.
HostTensor classes_of(const HostTensor& scores);

/// The quality of a model on test samples.
struct TestResult {
  std::vector<models::Metric> metrics = {};  ///< The measures of its model.
  std::optional<double> accuracy = {};       ///< Percentage of the first labels.
  /// Percentage of each labels by the name of their prediction.
  std::vector<std::pair<std::string, double>> accuracies = {};
  std::optional<double> loss = {};                          ///< Mean of the loss.
  std::vector<std::pair<std::string, double>> losses = {};  ///< Means of its parts by name.
  std::optional<double> squared_error = {};                 ///< Mean squared error of a regression.

  bool shows_loss() const;
  /// The line of a report: "accuracy 97.20 %".
  std::string text() const;
  void add_to(JsonRecord& record) const;

 private:
  std::string accuracy_text() const;
  std::string loss_text() const;
};

/// Tests a model on every sample: counts the right classes, or computes the mean of the squared
/// differences of all elements of all targets. Calls `after_call` after each call of the model.
TestResult test(const train::TrainingModel& model, const ModelOptions& options,
                const data::Dataset& samples, train::Show show,
                const std::function<void()>& after_call = nullptr);

}  // namespace sluice::tool
