// Metrics of evaluate() by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/train/fit.h"
#include "sluice/train/metrics/label_counts.h"

namespace sluice::train {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kMeasured = 23, kScored = 9, kIgnoredLabel = -100;

// Returns whether a label has one of the k largest scores, by a stable sort.
bool is_in_top(std::span<const float> row, int32_t label, int64_t k) {
  std::vector<int32_t> order(row.size());
  for (size_t c = 0; c < order.size(); ++c) order[c] = static_cast<int32_t>(c);
  const auto score = [&](int32_t c) { return row[static_cast<size_t>(c)]; };
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    return score(a) > score(b) || (std::isnan(score(a)) && !std::isnan(score(b)));
  });
  return std::find(order.begin(), order.begin() + k, label) != order.begin() + k;
}

TEST(LabelCounts, OrderEqualScoresByClassAndNanBeforeNumbers) {
  const float values[] = {0, -0.0F, 1, 2, kNotANumber, -1, std::numeric_limits<float>::infinity()};
  uint32_t draw = 7;
  int64_t right = 0, in_top = 0, counted = 0;
  LabelCounts counts;
  for (int i = 0; i < 3000; ++i) {
    HostTensor row(f32_spec({1, 7}));
    for (float& x : row.as<float>()) x = values[(draw = draw * 1664525 + 1013904223) >> 16 & 3];
    row.as<float>()[static_cast<size_t>(i % 7)] = values[(draw >> 8) % 7];
    const auto label = static_cast<int32_t>((draw >> 20) % 9) - 1;  // -1 and 7 are not classes.
    counts.add(row, {&label, 1}, 3);
    if (label == 3) continue;
    ++counted;
    right += is_in_top(row.as<float>(), label, 1);
    in_top += is_in_top(row.as<float>(), label, 5);
  }
  EXPECT_TRUE(counts.has_top());
  EXPECT_EQ(counts.percentage(), 100.0 * static_cast<double>(right) / static_cast<double>(counted));
  EXPECT_EQ(counts.top_percentage(),
            100.0 * static_cast<double>(in_top) / static_cast<double>(counted));
}

TEST(LabelCounts, HaveATopOfMoreThanFiveScores) {
  const int32_t label = 4;
  for (const int64_t scores : {5, 6}) {
    LabelCounts counts;
    counts.add(HostTensor(f32_spec({1, scores})), {&label, 1}, {});
    EXPECT_EQ(counts.has_top(), scores == 6);
    EXPECT_EQ(counts.percentage(), 0);
    EXPECT_EQ(counts.top_percentage(), 100);  // Four equal scores precede that of class 4.
  }
}

TEST(Metric, ComparesByItsDirection) {
  const Metric loss{.value = 2}, accuracy{.value = 2, .better = Metric::Better::kHigher};
  EXPECT_TRUE(loss.is_better_than(3) && accuracy.is_better_than(1));
  EXPECT_FALSE(loss.is_better_than(1) || accuracy.is_better_than(3));
  for (const Metric& m : {loss, accuracy}) {
    EXPECT_TRUE(m.is_better_than(kNotANumber) && !m.is_better_than(2));
    Metric none = m;
    none.value = kNotANumber;
    EXPECT_FALSE(none.is_better_than(2) || none.is_better_than(kNotANumber));
  }
}

// Scores that the network adds a trained offset to.
struct Scores : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor x = in["input"] + b.add_variable_input("offset", nn::zeros(), {kScored}, f32);
    Results all{.predictions = {{"scores", x, "labels", {}, kIgnoredLabel}}};
    if (in.wants_losses()) all.losses = {cross_entropy(x, in["labels"], options)};
    return all;
  }
  nn::CrossEntropyOptions options;
};

data::Dataset scored_rows() {
  HostTensor input(f32_spec({kMeasured, kScored})), labels(i32_spec({kMeasured}));
  for (int i = 0; i < kMeasured; ++i) {
    for (int c = 0; c < kScored; ++c) {
      input.as<float>()[static_cast<size_t>(i * kScored + c)] =
          static_cast<float>((i * 37 + c * 53 + i * i * c) % 97) / 16;
    }
    labels.as<int32_t>()[static_cast<size_t>(i)] =
        i % 5 == 4 ? static_cast<int32_t>(kIgnoredLabel) : (i * 7 + 3) % 9;
  }
  return data::from_tensors({{"input", std::move(input)}, {"labels", std::move(labels)}});
}

Evaluation metrics_of(const Network& network, const data::Dataset& data, Options options = {}) {
  options.session = {.device = cpu_device({.threads = 1})};
  InferenceModel model = inference_model(network, options);
  return evaluate(model, data);
}

std::vector<std::string> metric_names(const Evaluation& evaluation) {
  std::vector<std::string> names;
  for (const Metric& m : evaluation.metrics) names.push_back(m.name);
  return names;
}

using MetricNames = std::vector<std::string>;

// The expected values are computed by PyTorch in float64: F.cross_entropy and topk.
TEST(Metrics, OfScoresAreThoseOfPyTorch) {
  for (const int64_t batch : {1, 3, 23}) {
    const Network net(Scores(),
                      {{"input", f32_spec({batch, kScored})}, {"labels", i32_spec({batch})}});
    for (const Options& options : {Options(), Options{.device_iterations = 2, .replicas = 2}}) {
      const Evaluation found = metrics_of(net, scored_rows(), options);
      EXPECT_EQ(metric_names(found),
                (MetricNames{"loss", "perplexity", "accuracy", "top5_accuracy"}));
      EXPECT_NEAR(found.metric("loss").value, 3.3171640294722673, 1e-6);
      EXPECT_NEAR(found.metric("perplexity").value, 27.582017746819496, 3e-5);
      EXPECT_EQ(found["accuracy"], 100.0 * 3 / 19);
      EXPECT_EQ(found["top5_accuracy"], 100.0 * 10 / 19);
      EXPECT_EQ(found.metric("loss").better, Metric::Better::kLower);
      EXPECT_EQ(found.metric("perplexity").better, Metric::Better::kLower);
      EXPECT_EQ(found.metric("top5_accuracy").better, Metric::Better::kHigher);
      EXPECT_TRUE(found.metric("accuracy").percent && !found.metric("loss").percent);
    }
  }
}

TEST(Metrics, HaveNoPerplexityOfOtherCrossEntropies) {
  Scores weighted, smoothed;
  weighted.options.class_weights = std::vector<double>(kScored, 2.0);
  smoothed.options.label_smoothing = 0.1;
  for (const Scores& scores : {weighted, smoothed}) {
    const Network net(scores, {{"input", f32_spec({4, kScored})}, {"labels", i32_spec({4})}});
    EXPECT_EQ(metric_names(metrics_of(net, scored_rows())),
              (MetricNames{"loss", "accuracy", "top5_accuracy"}));
  }
}

TEST(Metrics, AreThoseOfTheLabelsThatCount) {
  const Network net(Scores(), {{"input", f32_spec({4, kScored})}, {"labels", i32_spec({4})}});
  // Row 4 alone: its label is ignored.
  const Evaluation none = metrics_of(net, scored_rows().skip(4).take(1));
  EXPECT_TRUE(none.metrics.empty());
  EXPECT_EQ(none.samples, 1);
  const Evaluation found = metrics_of(net, scored_rows().take(5));
  expect_refused({{"unknown", [&] { found.metric("recall"); },
                   "evaluation: a metric must be one of loss, perplexity, accuracy, "
                   "top5_accuracy, got 'recall'"}});
}

// Predictions sin(1), sin(2), … of a regression, and half of them.
struct Targets : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor y = in["x"] * b.add_variable_input("w", nn::ones(), {}, f32);
    Results all{.predictions = {{"y", ops::cast(y, dtype), "target"}}};
    if (two) all.predictions.push_back({"half", y * 0.5, "target"});
    if (in.wants_losses()) all.losses = {mean_squared_error(y, in["target"])};
    return all;
  }
  DType dtype = f32;
  bool two = false;
};

Network regression(DType dtype, bool two = false) {
  Targets module;
  module.dtype = dtype;
  module.two = two;
  return {module, {{"x", f32_spec({4, 1}), f32_spec({3, 1})}, {"target", f32_spec({4, 1})}}};
}

// `target`: the shape of the targets; elements are equal.
data::Dataset waves(const Shape& target = {kMeasured, 1}, float first = 0.540302277F) {
  HostTensor x(f32_spec({kMeasured, 1})), y(f32_spec(target));
  for (size_t i = 0; i < static_cast<size_t>(kMeasured); ++i) {
    x.as<float>()[i] = std::sin(static_cast<float>(i + 1));
    y.as<float>()[i] = i == 0 ? first : std::cos(static_cast<float>(i + 1));
  }
  return data::from_tensors({{"x", std::move(x)}, {"target", std::move(y)}});
}

// The expected values are computed by PyTorch in float64: F.l1_loss and F.mse_loss.
TEST(Metrics, OfARegressionAreThoseOfPyTorch) {
  for (const Options& options : {Options(), Options{.device_iterations = 3, .replicas = 2}}) {
    for (const Shape& target : {Shape({kMeasured, 1}), Shape({kMeasured})}) {
      const Evaluation found = metrics_of(regression(f32), waves(target), options);
      EXPECT_EQ(found.samples, kMeasured);
      EXPECT_NEAR(found["mean_absolute_error"].value_or(-1), 0.8751723774425362, 1e-7);
      EXPECT_NEAR(found["mean_squared_error"].value_or(-1), 0.9604047970576473, 1e-7);
      EXPECT_EQ(found["accuracy"], std::nullopt);
    }
  }
  const Evaluation found = metrics_of(regression(f32), waves());
  EXPECT_EQ(metric_names(found),
            (MetricNames{"loss", "mean_absolute_error", "mean_squared_error"}));
  EXPECT_NEAR(*found["loss"], *found["mean_squared_error"], 1e-6);
  const Evaluation rounded = metrics_of(regression(bf16), waves());
  EXPECT_NEAR(rounded["mean_absolute_error"].value_or(-1), 0.8751723774425362, 4e-3);
}

TEST(Metrics, AreNamedByPredictionIfThereAreSeveral) {
  const Evaluation found = metrics_of(regression(f32, true), waves());
  EXPECT_EQ(metric_names(found),
            (MetricNames{"loss", "mean_absolute_error", "mean_absolute_error/y",
                         "mean_absolute_error/half", "mean_squared_error", "mean_squared_error/y",
                         "mean_squared_error/half"}));
  EXPECT_EQ(found["mean_squared_error"], found["mean_squared_error/y"]);
  EXPECT_GT(std::abs(*found["mean_squared_error/y"] - *found["mean_squared_error/half"]), 0.01);
}

// A call returns the predictions of its last micro-batch. They are compared with its targets.
TEST(Metrics, OfTheLastMicroBatchAreThoseOfItsLabels) {
  Options options{.device_iterations = 2, .output = Output::final()};
  const Evaluation found = metrics_of(regression(f32), waves().take(6), options);
  EXPECT_EQ(found.samples, 3);
  double absolute = 0;
  for (int i = 4; i <= 6; ++i) absolute += std::abs(std::sin(i) - std::cos(i)) / 3;
  EXPECT_NEAR(found["mean_absolute_error"].value_or(-1), absolute, 1e-6);
}

TEST(Metrics, RefuseTargetsThatAreNotThoseOfThePrediction) {
  const auto build = [](const Shape& target, std::optional<int64_t> ignored = {}) {
    struct Marked : nn::Module {
      Results build(nn::Builder& b, const Inputs& in) const {
        const Tensor y = in["x"] * b.add_variable_input("w", nn::ones(), {}, f32);
        return {.losses = {mean_squared_error(y, in["x"])},
                .predictions = {{"y", y, "target", {}, ignored}}};
      }
      std::optional<int64_t> ignored;
    };
    Marked module;
    module.ignored = ignored;
    return [=] {
      Network(module, {{"x", f32_spec({4, 2})}, {"target", f32_spec(target)}})
          .build(Ir(), nn::RunMode::kTrain);
    };
  };
  expect_refused(
      {{"columns", build({4, 1}),
        "network: prediction 'y' must be floating-point with the shape of its labels 'target' "
        "(4, 1) float32, got (4, 2) float32"},
       {"ignored", build({4, 2}, -1),
        "network: prediction 'y' has the floating-point labels 'target', so it must have no "
        "classes and no ignore_index"},
       {"nan",
        [] {
          metrics_of(regression(f32), waves({kMeasured, 1}, kNotANumber));
        },
        "the label of prediction 'y' in row 0 is nan", ErrorKind::kDiverged}});
}

}  // namespace
}  // namespace sluice::train
