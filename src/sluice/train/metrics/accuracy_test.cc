// The accuracy compares predictions that the network marks with their labels.
#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/softmax.h"
#include "sluice/train/fit.h"

namespace sluice::train {
namespace {

constexpr int64_t kTexts = 6, kTokens = 4, kVocabulary = 3;

// Scores that the network adds a trained offset to. Of the 24 tokens, `right` have their largest
// score at their label. The labels of the others are the class of the lowest score.
data::Element texts(int right) {
  HostTensor scores(f32_spec({kTexts, kTokens, kVocabulary})), labels(i32_spec({kTexts, kTokens}));
  for (int i = 0; i < kTexts * kTokens; ++i) {
    const auto token = static_cast<size_t>(i);
    const size_t largest = token % 3, lowest = (token + 1) % 3;
    scores.as<float>()[3 * token + largest] = 1;
    scores.as<float>()[3 * token + lowest] = -1;
    labels.as<int32_t>()[token] = static_cast<int32_t>(i < right ? largest : lowest);
  }
  return {{"input", std::move(scores)}, {"targets", std::move(labels)}};
}

// A language model: it scores each token of a text. The prediction before the logits has their
// shape and the opposite order of classes.
struct Tokens : nn::Module {
  explicit Tokens(std::string the_labels) : labels(std::move(the_labels)) {}
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor logits =
        in["input"] + b.add_variable_input("offset", nn::zeros(), {kVocabulary}, f32);
    Results all{.predictions = {{"weights", logits * -1.0}, {"logits", logits, labels}}};
    if (!in.wants_losses()) return all;
    const int64_t tokens = logits.dim(0) * kTokens;
    all.losses = {cross_entropy(ops::reshape(logits, {tokens, kVocabulary}),
                                ops::reshape(in["targets"], {tokens}))};
    return all;
  }
  std::string labels;
};

Network tokens(const std::string& labels) {
  return {Tokens(labels),
          {{"input", f32_spec({2, kTokens, kVocabulary})}, {"targets", i32_spec({2, kTokens})}}};
}

Options options(int64_t accumulate = 1, Output output = Output::all()) {
  return {.accumulate = accumulate,
          .output = output,
          .learning_rate = 1e-9,
          .session = {.device = cpu_device({.threads = 1})}};
}

TEST(Accuracy, IsThatOfTheMarkedPrediction) {
  const data::Dataset set = data::from_tensors(texts(18));
  TrainingModel model = training_model(tokens("targets"), options(3));
  EXPECT_EQ(fit(model, set).accuracy, 75);
  InferenceModel test = inference_model(model);
  const Evaluation all = evaluate(test, set);
  EXPECT_EQ(all["accuracy"], 75);
  EXPECT_EQ(all.samples, kTexts);
  // A text of five is alone in its micro-batch: 18 of 20 tokens are right.
  EXPECT_EQ(evaluate(test, set.take(5))["accuracy"], 90);
  // The last micro-batch alone: texts 4 and 5, of whose 8 tokens the first 2 are right.
  TrainingModel last = training_model(tokens("targets"), options(3, Output::final()));
  DataLoader data(last.options(), set, {.batch_size = 2});
  EXPECT_EQ(fit(last, data).accuracy, 25);
}

// Classes of tokens, and of the last token of each text, with labels of their own.
struct Classes : nn::Module {
  explicit Classes(std::optional<int64_t> the_ignored) : ignored(the_ignored) {}
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor logits =
        in["input"] + b.add_variable_input("offset", nn::zeros(), {kVocabulary}, f32);
    const Tensor losses = ops::nll_loss(ops::softmax(logits), in["targets"],
                                        {.reduction = ops::LossReduction::kNone});
    Results all{
        .predictions = {
            {"losses", losses},
            {"tokens", ops::argmax(logits, {.axis = -1}), "targets", {}, ignored, kVocabulary},
            {"last", ops::select(logits, kTokens - 1, 1), "finals"}}};
    if (in.wants_losses()) all.losses = {{.value = ops::mean(losses)}};
    return all;
  }
  std::optional<int64_t> ignored;
};

// The loss of the last token of each text, computed of its scores.
Network scored_finals() {
  struct Finals : nn::Module {
    Results build(nn::Builder& b, const Inputs& in) const {
      const Tensor logits =
          in["input"] + b.add_variable_input("offset", nn::zeros(), {kVocabulary}, f32);
      const Tensor last = ops::select(logits, kTokens - 1, 1);
      Results all{.predictions = {{"tokens", logits, "targets"}, {"last", last, "finals"}}};
      if (in.wants_losses()) all.losses = {cross_entropy(last, in["finals"])};
      return all;
    }
  };
  return {Finals(),
          {{"input", f32_spec({2, kTokens, kVocabulary})},
           {"targets", i32_spec({2, kTokens})},
           {"finals", i32_spec({2})}}};
}

Network classes(std::optional<int64_t> ignored = {}) {
  return {Classes(ignored),
          {{"input", f32_spec({2, kTokens, kVocabulary})},
           {"targets", i32_spec({2, kTokens})},
           {"finals", i32_spec({2})}}};
}

// Token 3 of text t has the label (4·t + 3) % 3. The labels of 3 of the 6 texts are that class.
data::Element texts_with_finals(int right) {
  data::Element all = texts(right);
  HostTensor finals(i32_spec({kTexts}));
  for (int t = 0; t < kTexts; ++t)
    finals.as<int32_t>()[static_cast<size_t>(t)] = (4 * t + 3 + t % 2) % 3;
  all.names.emplace_back("finals");
  all.arrays.push_back(std::move(finals));
  return all;
}

TEST(Accuracy, IsThatOfClassesAndOfSeveralLabels) {
  const data::Dataset set = data::from_tensors(texts_with_finals(18));
  TrainingModel model = training_model(classes(), options(3));
  EXPECT_EQ(fit(model, set).accuracy, 75);
  InferenceModel test = inference_model(model);
  const Evaluation all = evaluate(test, set);
  EXPECT_EQ(all["accuracy"], 75);
  EXPECT_EQ(all["accuracy/tokens"], 75);
  EXPECT_EQ(all["accuracy/last"], 50);
  const Evaluation five = evaluate(test, set.take(5));
  EXPECT_EQ(five["accuracy/tokens"], 90);
  EXPECT_EQ(five["accuracy/last"], 60);
  // The losses of all tokens are returned, and the loss is their mean.
  TrainingModel scored = training_model(tokens("targets"), options(3));
  InferenceModel of_scores = inference_model(scored);
  EXPECT_FLOAT_EQ(static_cast<float>(all["loss"].value()),
                  static_cast<float>(evaluate(of_scores, set)["loss"].value()));
}

TEST(Accuracy, LeavesOutIgnoredLabels) {
  data::Element all = texts_with_finals(24);
  int wrong = 0;
  for (int32_t& label : all.arrays[1].as<int32_t>()) {
    if (label == 0) continue;
    label = 3 - label;  // 1 and 2 are exchanged.
    ++wrong;
  }
  ASSERT_EQ(wrong, 16);
  const auto accuracy = [&](std::optional<int64_t> ignored) {
    InferenceModel test = inference_model(classes(ignored), options());
    return evaluate(test, data::from_tensors(all))["accuracy"];
  };
  EXPECT_DOUBLE_EQ(accuracy({}).value(), 100.0 / 3);
  EXPECT_EQ(accuracy(1), 50);
  EXPECT_EQ(accuracy(0), 0);
  for (int32_t& label : all.arrays[1].as<int32_t>()) label = 2;
  EXPECT_EQ(accuracy(2), std::nullopt);
}

TEST(Accuracy, NamesTheLabelOfALossThatIsNotFinite) {
  data::Element all = texts_with_finals(24);
  all.arrays[1].as<int32_t>()[kTokens * 4 + 1] = 7;
  InferenceModel test = inference_model(classes(), options());
  expect_refused(
      {{"label", [&] { evaluate(test, data::from_tensors(all)); },
        "prediction 'losses' in row 4 is nan; label 7 is outside 0..2", ErrorKind::kDiverged}});
}

// A call returns the scores of its last micro-batch.
TEST(Accuracy, RefusesALossThatIsNotFiniteOfTheLastMicroBatch) {
  data::Element all = texts_with_finals(24);
  all.arrays[2].as<int32_t>()[5] = 9;
  Options last = options(1, Output::final());
  last.device_iterations = 3;
  InferenceModel test = inference_model(scored_finals(), last);
  expect_refused(
      {{"label", [&] { evaluate(test, data::from_tensors(all)); },
        "the loss 'loss' of rows 4 to 5 is nan; label 9 is outside 0..2", ErrorKind::kDiverged}});
}

TEST(Accuracy, IsAbsentWithoutAMark) {
  const data::Dataset set = data::from_tensors(texts(18));
  TrainingModel model = training_model(tokens(""), options());
  EXPECT_EQ(fit(model, set).accuracy, std::nullopt);
  InferenceModel test = inference_model(model);
  EXPECT_EQ(evaluate(test, set)["accuracy"], std::nullopt);
}

TEST(Accuracy, IsAbsentWithoutLabelsInTheDataset) {
  InferenceModel test = inference_model(tokens("targets"), options());
  const data::Element all = texts(18);
  EXPECT_EQ(evaluate(test, data::from_tensors({{"input", all["input"]}}))["accuracy"],
            std::nullopt);
  data::Element other = texts(18);
  other.arrays[1] = HostTensor(f32_spec({kTexts, kTokens}));
  expect_refused(
      {{"floats", [&] { evaluate(test, data::from_tensors(other)); },
        "eval: the labels 'targets' must be int32, got (2, 4) float32"},
       {"fewer labels",
        [&] {
          other.arrays[1] = HostTensor(i32_spec({kTexts, 5}));
          evaluate(test, data::from_tensors(other));
        },
        "evaluate: prediction 'logits' (2, 4, 3) float32 must have a row for each label, "
        "got labels (2, 5) int32"}});
}

// A network with one prediction of the value that `make` returns.
Network with(const std::function<Prediction(const Inputs&)>& make) {
  struct Marked : nn::Module {
    Results build(nn::Builder& b, const Inputs& in) const {
      const Tensor x = in["input"] * b.add_variable_input("w", nn::ones(), {}, f32);
      Results all{.predictions = {make(in)}};
      all.predictions.push_back({"scores", x, "labels"});
      if (in.wants_losses()) all.losses = {{.value = ops::mean(x)}};
      return all;
    }
    std::function<Prediction(const Inputs&)> make;
  };
  Marked module;
  module.make = make;
  return {module,
          {{"input", f32_spec({2, 3})},
           {"labels", i32_spec({2})},
           {"floats", f32_spec({2})},
           {.name = "rate", .spec = f32_spec({}), .once = true}}};
}

TEST(Accuracy, RefusesLabelsThatAreNotThoseOfTheScores) {
  const auto refused = [](const char* labels, const char* text,
                          const std::function<Tensor(const Tensor&)>& value) {
    return Refusal{text,
                   [=] {
                     with([=](const Inputs& in) {
                       return Prediction{"p", value(in["input"]), labels};
                     }).build(Ir(), nn::RunMode::kTrain);
                   },
                   text};
  };
  const auto same = [](const Tensor& x) { return x * 1.0; };
  expect_refused(
      {refused("targets",
               "network: the labels of prediction 'p' must be a field of each micro-batch, one of "
               "'input', 'labels', 'floats', 'rate', got 'targets'",
               same),
       refused("rate", "one of 'input', 'labels', 'floats', 'rate', got 'rate'", same),
       refused("floats",
               "network: prediction 'p' must be floating-point with the shape of its labels "
               "'floats' (2,) float32, got (2, 3) float32",
               same),
       refused("labels", "int32, got () float32", [](const Tensor& x) { return ops::mean(x); }),
       refused("labels", "int32, got (3, 2) float32",
               [](const Tensor& x) {
                 return ops::reshape(x * 1.0, {3, 2});
               }),
       refused("labels", "int32, got (2, 3) float16",
               [](const Tensor& x) { return ops::cast(x, f16); }),
       refused("labels",
               "network: prediction 'p' must be int32 with a class, or float32 with a row of "
               "scores, for each of its labels 'labels' (2,) int32, got (2, 3) int32",
               [](const Tensor& x) { return ops::cast(x, i32); })});
  const Network summed = with([](const Inputs& in) {
    return Prediction{"p", in["input"] * 1.0, "labels", {.form = Writing::Reduction::kSum}};
  });
  expect_refused({{"a sum", [&] { summed.build(Ir(), nn::RunMode::kTrain); },
                   "its value of each micro-batch must be written"}});
}

}  // namespace
}  // namespace sluice::train
