#include "tools/data/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/numbers/argmax.h"
#include "sluice/base/numbers/slices.h"

namespace sluice::tool {
data::Dataset dataset_of(models::Loss loss, data::Samples samples) {
  data::Element whole;
  whole.names = {"input", loss == models::Loss::kCrossEntropy ? "labels" : "target"};
  whole.arrays.push_back(std::move(samples.images));
  whole.arrays.push_back(std::move(samples.labels));
  return data::from_tensors(std::move(whole));
}

HostTensor classes_of(const HostTensor& scores) {
  HostTensor classes({{scores.shape()[0]}, i32, {}});
  const Slices rows(scores.as<float>(), scores.shape()[0]);
  int64_t row = 0;
  for (int32_t& c : classes.as<int32_t>()) c = static_cast<int32_t>(argmax(rows[row++]));
  return classes;
}

std::string TestResult::key() const {
  return loss == models::Loss::kCrossEntropy ? "accuracy" : "mean_squared_error";
}

std::string TestResult::text() const {
  return loss == models::Loss::kCrossEntropy ? fmt::format("accuracy {:.2f} %", value)
                                             : fmt::format("mean squared error {:.6g}", value);
}

TestResult test(const train::TrainingModel& model, models::Loss loss, const data::Dataset& samples,
                train::Show show, const std::function<void()>& after_call) {
  train::InferenceModel inference = train::inference_model(model);
  if (loss == models::Loss::kCrossEntropy) {
    const train::Evaluation evaluation = train::evaluate(inference, samples, show, after_call);
    require(evaluation.accuracy.has_value(),
            "test: the model must mark a prediction with its labels (train::Prediction)");
    return {*evaluation.accuracy, loss, evaluation.loss};
  }
  const data::Element predictions = train::predict(inference, samples, show, after_call);
  const auto found = predictions.arrays[0].as<float>();
  double sum = 0;
  size_t i = 0;
  for (const data::Element& sample : samples) {
    for (const float target : sample["target"].as<float>()) {
      const double difference = static_cast<double>(found[i++]) - static_cast<double>(target);
      sum += difference * difference;
    }
  }
  SLUICE_CHECK(i == found.size());
  return {sum / static_cast<double>(found.size()), loss, std::nullopt};
}

}  // namespace sluice::tool
