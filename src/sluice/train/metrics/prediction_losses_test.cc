#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/reductions.h"
#include "sluice/train/fit.h"
#include "sluice/train/test_samples.h"

// Tests the losses of evaluate().

namespace sluice::train {
namespace {

Options evaluated_on(Options options = {}) {
  options.session = {.device = cpu_device({.threads = 1})};
  return options;
}

// The mean over the samples of -log softmax(scores)[label], in double.
double cross_entropy_of(const HostTensor& scores, const HostTensor& labels) {
  const std::vector<double> x = scores.to_doubles();
  const auto classes = static_cast<size_t>(scores.shape()[1]);
  double sum = 0;
  for (size_t i = 0; i < labels.as<int32_t>().size(); ++i) {
    double all = 0;
    for (size_t c = 0; c < classes; ++c) all += std::exp(x[i * classes + c]);
    const auto label = static_cast<size_t>(labels.as<int32_t>()[i]);
    sum += std::log(all) - x[i * classes + label];
  }
  return sum / static_cast<double>(labels.elements());
}

// The last micro-batch and the last item are not full.
TEST(Evaluate, ReturnsTheMeanOfTheLossOverAllSamples) {
  const data::Element all = test::samples(11);
  for (const int replicas : {1, 2}) {
    const Options options = evaluated_on({.replicas = replicas});
    const auto net = classifier(nn::Linear(3), f32_spec({2, 6}), {.eval_input = f32_spec({3, 6})});
    TrainingModel model = training_model(net, options);
    InferenceModel test = inference_model(model);
    const Evaluation found = evaluate(test, test::dataset(11));
    EXPECT_EQ(found.samples, 11);
    ASSERT_TRUE(found["loss"].has_value());
    const data::Element scores = predict(test, test::dataset(11));
    EXPECT_NEAR(*found["loss"], cross_entropy_of(scores["logits"], all["labels"]), 1e-6);
    EXPECT_EQ(found["loss/loss"], std::nullopt);
    EXPECT_EQ(found["perplexity"], std::exp(*found["loss"]));
  }
}

// A regression has losses and no classes. It returns its losses in both modes.
struct Line : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor y = b.inlined("fc", nn::Linear(1), in["x"]);
    Results all{.losses = {mean_squared_error(y, in["y"]),
                           {.name = "size", .value = ops::mean(y * y), .weight = 0.5}},
                .predictions = {{"y", y}}};
    if (!with_hidden) return all;
    const Tensor hidden = b.inlined("aside", nn::Linear(1), in["x"]);
    all.losses.push_back({.name = "hidden", .value = ops::mean(hidden * hidden)});
    return all;
  }
  bool with_hidden = false;
};

TEST(Evaluate, ReturnsTheLossesOfARegression) {
  const data::Element all{{"x", test::samples(7)["input"]},
                          {"y", test::samples(7, 50)["input"].reshaped({7, 6})}};
  HostTensor targets(f32_spec({7, 1}));
  for (size_t i = 0; i < 7; ++i) targets.as<float>()[i] = all["y"].as<float>()[6 * i];
  const data::Dataset data = data::from_tensors({{"x", all["x"]}, {"y", targets}});
  const auto evaluated = [&](bool with_hidden, const Options& options) {
    Line line;
    line.with_hidden = with_hidden;
    const Network net(line, {{"x", f32_spec({3, 6})}, {"y", f32_spec({3, 1})}});
    TrainingModel model = training_model(net, evaluated_on());
    InferenceModel test = inference_model(model, options);
    const std::vector<double> y = predict(test, data).arrays[0].to_doubles();
    double error = 0, size = 0;
    for (size_t i = 0; i < 7; ++i) {
      error += std::pow(y[i] - static_cast<double>(targets.as<float>()[i]), 2) / 7;
      size += y[i] * y[i] / 7;
    }
    const Evaluation found = evaluate(test, data);
    for (const char* const name : {"accuracy", "perplexity", "loss/hidden"})
      EXPECT_EQ(found[name], std::nullopt) << name;
    EXPECT_NEAR(found["loss/loss"].value_or(-1), error, 1e-6);
    EXPECT_NEAR(found["loss/size"].value_or(-1), size, 1e-6);
    return std::pair(found, error + 0.5 * size);
  };
  const auto [found, expected] = evaluated(false, evaluated_on({.device_iterations = 2}));
  EXPECT_NEAR(found["loss"].value_or(-1), expected, 1e-6);
  EXPECT_THAT(to_string(found), testing::MatchesRegex("Loss on test set: [0-9.]+ \\(7 samples, 0 "
                                                      "dropped\\)"));
  // A loss that does not follow from the predictions is left out, and so is the sum.
  EXPECT_EQ(evaluated(true, evaluated_on()).first["loss"], std::nullopt);
}

// Labels below zero do not count. The last micro-batch has none that counts.
struct Ignoring : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor x = b.inlined("out", nn::Linear(3), in["input"]);
    return {.losses = {cross_entropy(x, in["labels"], nn::CrossEntropyOptions{.ignore_index = -1})},
            .predictions = {{"logits", x, "labels"}}};
  }
};

TEST(Evaluate, DividesALossByItsTotalWeight) {
  const data::Element all = test::samples(8);
  HostTensor labels = HostTensor::of<int32_t>({8}, i32, {0, -1, 1, 2, 2, -1, -1, -1});
  const data::Dataset data = data::from_tensors({{"input", all["input"]}, {"labels", labels}});
  const Network net(Ignoring(), {{"input", f32_spec({3, 6})}, {"labels", i32_spec({3})}});
  InferenceModel model = inference_model(net, evaluated_on());
  const std::vector<double> x = predict(model, data).arrays[0].to_doubles();
  double sum = 0;
  for (const size_t i : {0, 2, 3, 4}) {
    const double* const row = x.data() + 3 * i;
    const auto label = static_cast<size_t>(labels.as<int32_t>()[i]);
    sum += std::log(std::exp(row[0]) + std::exp(row[1]) + std::exp(row[2])) - row[label];
  }
  EXPECT_NEAR(evaluate(model, data)["loss"].value_or(-1), sum / 4, 1e-6);
}

// Its build() returns losses in training only.
struct TrainingLoss : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor x = b.inlined("out", nn::Linear(3), in["input"]);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", x, "labels"}}};
    return {.losses = {cross_entropy(x, in["labels"])}};
  }
};

TEST(Evaluate, ReturnsNoLossThatTheNetworkComputesInTrainingAlone) {
  const Network net(TrainingLoss(), {{"input", f32_spec({2, 6})}, {"labels", i32_spec({2})}});
  InferenceModel model = inference_model(net, evaluated_on());
  const Evaluation found = evaluate(model, test::dataset(8));
  ASSERT_EQ(found.metrics.size(), 1u);
  EXPECT_EQ(found.metrics[0].name, "accuracy");
}

}  // namespace
}  // namespace sluice::train
