// Document 002's network must learn as the document's output shows. It trains on MNIST if
// $SLUICE_DATA has it, else on generated digits.

#include <gtest/gtest.h>

#include <iostream>
#include <numeric>

#include "sluice/devices/cpu_device.h"
#include "sluice/models/model.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

double mean_of_last(const std::vector<double>& values, size_t count) {
  return std::accumulate(values.end() - static_cast<std::ptrdiff_t>(count), values.end(), 0.0) /
         static_cast<double>(count);
}

TEST(CnnLearning, ThreeEpochsReachTheAccuracyOfTheDocument) {
  constexpr size_t kUpdates = 10;  // The document shows means over ten updates.
  constexpr double kLeast[] = {94, 96, 97};
  const data::Samples samples = data::load_digits(data::Split::kTrain);
  train::TrainingModel model = train::training_model(
      models::find_model("mnist-cnn").build({.micro_batch = 40, .eval_batch = 8}),
      {.accumulate = 10,
       .output = train::Output::all(),
       .learning_rate = 0.001,
       .session = {.device = cpu_device({.threads = 2})}},
      nn::Optimizer::adamw());
  train::InferenceModel test = train::inference_model(model);
  double last_loss = std::numeric_limits<double>::infinity();
  for (const double least : kLeast) {
    std::vector<double> accuracies, losses;
    train::fit(model, data::from_samples(samples),
               {.after_call = [&](const train::CallReport& report) {
                 accuracies.push_back(report.accuracy.value_or(0));
                 losses.push_back(report.loss);
                 return true;
               }});
    const double accuracy = mean_of_last(accuracies, kUpdates);
    const double loss = mean_of_last(losses, kUpdates);
    std::cout << fmt::format("{}: loss {:.4f}, accuracy {:.2f} %\n", samples.source, loss,
                             accuracy);
    EXPECT_GE(accuracy, least);
    EXPECT_LT(loss, last_loss);
    last_loss = loss;
  }
  const data::Samples tests = data::load_digits(data::Split::kTest);
  const double tested = *train::evaluate(test, data::from_samples(tests)).accuracy;
  std::cout << fmt::format("test {:.2f} %\n", tested);
  EXPECT_GT(tested, 97.5);
  EXPECT_LT(tested, 99.9);
}

}  // namespace
}  // namespace sluice::test
