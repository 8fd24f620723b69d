#include "tools/data/predictions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/numbers/argmax.h"
#include "sluice/base/numbers/slices.h"

namespace sluice::tool {

using models::Metric;

data::Dataset dataset_of(models::Loss loss, data::Samples samples) {
  data::Element whole;
  whole.names = {"input", loss == models::Loss::kCrossEntropy ? "labels" : "target"};
  whole.arrays.push_back(std::move(samples.images));
  whole.arrays.push_back(std::move(samples.labels));
  return data::from_tensors(std::move(whole));
}

namespace {

// Adds a list of several values with their names.
void add_named(JsonRecord& record, const char* key, const char* name_key,
               const std::vector<std::pair<std::string, double>>& values, const char* value_key) {
  if (values.size() < 2) return;
  std::vector<JsonRecord> all;
  for (const auto& [name, value] : values) {
    all.emplace_back().add(name_key, name);
    all.back().add(value_key, value);
  }
  record.add(key, std::move(all));
}

}  // namespace

HostTensor classes_of(const HostTensor& scores) {
  HostTensor classes({{scores.shape()[0]}, i32, {}});
  const Slices rows(scores.as<float>(), scores.shape()[0]);
  int64_t row = 0;
  for (int32_t& c : classes.as<int32_t>()) c = static_cast<int32_t>(argmax(rows[row++]));
  return classes;
}

bool TestResult::shows_loss() const {
  return std::find(metrics.begin(), metrics.end(), Metric::kLoss) != metrics.end();
}

std::string TestResult::accuracy_text() const {
  if (accuracies.size() == 1) return fmt::format("{:.2f} %", accuracies[0].second);
  std::vector<std::string> texts;
  for (const auto& [name, percentage] : accuracies)
    texts.push_back(fmt::format("{:.2f} % ({})", percentage, name));
  return fmt::format("{}", fmt::join(texts, " and "));
}

std::string TestResult::loss_text() const {
  std::string text = fmt::format("{:.4f}", *loss);
  if (losses.size() <= 1) return text;
  std::vector<std::string> texts;
  for (const auto& [name, value] : losses) texts.push_back(fmt::format("{} {:.4f}", name, value));
  return fmt::format("{} ({})", text, fmt::join(texts, ", "));
}

std::string TestResult::text() const {
  if (squared_error) return fmt::format("mean squared error {:.6g}", *squared_error);
  std::vector<std::string> texts;
  for (const Metric metric : metrics) {
    if (metric == Metric::kAccuracy && !accuracies.empty())
      texts.push_back("accuracy " + accuracy_text());
    if (metric == Metric::kLoss && loss) texts.push_back("test loss " + loss_text());
    if (metric == Metric::kPerplexity && loss)
      texts.push_back(fmt::format("perplexity {:.4f}", std::exp(*loss)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

void TestResult::add_to(JsonRecord& record) const {
  if (squared_error) record.add("mean_squared_error", *squared_error);
  if (accuracy) record.add("accuracy", *accuracy);
  add_named(record, "accuracies", "prediction", accuracies, "accuracy");
  if (loss) record.add("test_loss", *loss);
  add_named(record, "test_losses", "loss", losses, "value");
  if (loss && std::find(metrics.begin(), metrics.end(), Metric::kPerplexity) != metrics.end())
    record.add("perplexity", std::exp(*loss));
}

TestResult test(const train::TrainingModel& model, const ModelOptions& options,
                const data::Dataset& samples, train::Show show,
                const std::function<void()>& after_call) {
  train::InferenceModel inference = train::inference_model(model);
  if (options.sizes.loss == models::Loss::kCrossEntropy) {
    const train::Evaluation evaluation = train::evaluate(inference, samples, show, after_call);
    require(!evaluation.accuracies.empty(),
            "test: a prediction with labels that count is required, got none");
    return {.metrics = models::find_model(options.name).metrics,
            .accuracy = evaluation.accuracy,
            .accuracies = evaluation.accuracies,
            .loss = evaluation.loss,
            .losses = evaluation.losses};
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
  return {.squared_error = sum / static_cast<double>(found.size())};
}

}  // namespace sluice::tool
