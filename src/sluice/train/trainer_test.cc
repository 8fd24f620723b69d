#include "sluice/train/trainer.h"
#include "sluice/devices/cpu_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sluice/base/test_refusals.h"
#include "sluice/data/samples.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/reductions.h"

namespace sluice::train {
namespace {

// A hidden layer that draws in training only.
class Hidden : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x, const Tensors& seed) const {
    const Tensor y = ops::gelu(nn::Linear(8).build(b, x));
    return seed.empty() ? y : b.inlined("dropout", nn::Dropout(0.25), y, seed[0]);
  }
};

class Net : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x, const Tensors& seed) const {
    return out_(b, hidden_(b, x, seed));
  }

 private:
  nn::Child<Hidden> hidden_{*this, "hidden"};
  nn::Child<nn::Linear> out_{*this, "out", 3};
};

Network model() { return classifier(Net(), f32_spec({2, 6})); }

// `n` samples of six features.
data::Samples samples(int64_t n) {
  data::Samples set{HostTensor(f32_spec({n, 6})), HostTensor(i32_spec({n})), "a test"};
  float next = 0;
  for (float& x : set.images.as<float>()) x = std::sin(next += 1);
  int32_t label = 0;
  for (int32_t& l : set.labels.as<int32_t>()) l = label++ % 3;
  return set;
}

Trainer trainer(const Network& m, const StepOptions& step = {.learning_rate = 0.5},
                int replicas = 1) {
  return Trainer(m, nn::Optimizer::sgd(), step, {.device = cpu_device({.threads = 1})}, replicas);
}

TEST(Trainer, ASecondCallContinuesTheFirst) {
  const data::Samples set = samples(9);  // Four steps an epoch and a sample that is dropped.
  Trainer whole = trainer(model());
  const FitResult all = whole.fit(set, {.steps = 10, .seed = 3});
  Trainer parts = trainer(model());
  std::vector<float> losses = parts.fit(set, {.steps = 3, .seed = 3}).losses;
  const FitResult rest = parts.fit(set, {.steps = 7, .seed = 3});
  losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
  EXPECT_EQ(losses, all.losses);
  EXPECT_EQ(all.losses.size(), 10u);
  EXPECT_EQ(all.steps, 10);
  EXPECT_EQ(all.loss, all.losses.back());
  EXPECT_NE(all.losses, trainer(model()).fit(set, {.steps = 10, .seed = 4}).losses);
}

TEST(Trainer, StepsHaveTheSameBitsInRunsOfAnyLength) {
  const data::Samples set = samples(62);  // Five runs of one step of 12, or two of two steps.
  const auto run = [&](const Strategy& strategy, int64_t repeat) {
    StepOptions step{.strategy = strategy, .accumulate = 3, .repeat = repeat};
    step.learning_rate = 0.5;
    Trainer t(model(), nn::Optimizer::adam(), step,
              {.device = cpu_device({.threads = 1}), .more_devices = {cpu_device({.threads = 1})}},
              2);
    std::vector<int64_t> done;
    const FitResult result = t.fit(set, {.steps = 4, .seed = 5, .after_step = [&](const auto& s) {
                                           done.push_back(s.done);
                                           return true;
                                         }});
    EXPECT_EQ(result.steps, 4);
    EXPECT_EQ(done.size(), static_cast<size_t>(4 / repeat));
    EXPECT_EQ(done.back(), 4);
    std::vector<std::vector<float>> values{result.losses};
    t.session().each_variable([&](const std::string&, const HostTensor& v) {
      if (v.dtype() != f32) return;
      const auto floats = v.as<float>();
      values.emplace_back(floats.begin(), floats.end());
    });
    return values;
  };
  const auto expected = run(resident(), 1);
  EXPECT_EQ(expected[0].size(), 4u * 3 * 2);
  EXPECT_EQ(run(resident(), 2), expected);
  EXPECT_EQ(run(resident(), 4), expected);
  EXPECT_EQ(run(PipelinedExecution{2}, 2), expected);
}

TEST(Trainer, LengthCountsWholeRuns) {
  const Trainer t = trainer(model(), {.accumulate = 2, .repeat = 3, .learning_rate = 0.5}, 2);
  const FitLength length = t.length(samples(60), {.epochs = 3});
  EXPECT_EQ(length.samples_per_step, 8);
  EXPECT_EQ(length.steps_per_epoch, 6);
  EXPECT_EQ(length.dropped, 12);
  EXPECT_EQ(length.steps, 18);
  expect_refused({
      {"steps", [&] { t.length(samples(60), {.steps = 4}); },
       "fit: steps must be a multiple of the 3 steps of a run, got 4"},
      {"samples", [&] { t.length(samples(23), {}); }, "the data must fill one batch of 24 samples"},
  });
}

TEST(Trainer, LearnsInEveryStrategyWithTheSameBits) {
  const data::Samples set = samples(24);
  const auto run = [&](Strategy strategy, const TensorLocations& locations) {
    Trainer t = trainer(
        model(),
        {.strategy = strategy, .accumulate = 3, .locations = locations, .learning_rate = 0.5}, 2);
    const FitResult result = t.fit(set, {.epochs = 4});
    EXPECT_EQ(result.steps, 8);
    EXPECT_EQ(result.losses.size(), 8u * 3 * 2);
    double mean = 0;
    for (size_t i = result.losses.size() - 6; i < result.losses.size(); ++i)
      mean += static_cast<double>(result.losses[i]) / 6;
    EXPECT_DOUBLE_EQ(result.loss, mean);
    return std::pair(result.losses, t.evaluate(set));
  };
  EXPECT_EQ(run(phased(), {.weights = Location::kRemote, .activations = Location::kRemote}),
            run(resident(), {}));
}

TEST(Trainer, LengthCountsWholeSteps) {
  const Trainer t = trainer(model(), {.accumulate = 2, .learning_rate = 0.5}, 2);
  const FitLength length = t.length(samples(27), {.epochs = 3});
  EXPECT_EQ(length.samples_per_step, 8);
  EXPECT_EQ(length.steps_per_epoch, 3);
  EXPECT_EQ(length.dropped, 3);
  EXPECT_EQ(length.steps, 9);
  EXPECT_EQ(t.length(samples(27), {.epochs = 3, .steps = 5}).steps, 5);
  EXPECT_EQ(t.eval_samples(), 4);
}

TEST(Trainer, StopsWhereAfterStepSaysSo) {
  Trainer t = trainer(model());
  std::vector<int64_t> seen;
  std::vector<double> means;
  const FitResult result =
      t.fit(samples(8), {.epochs = 5, .after_step = [&](const StepReport& step) {
                           seen.push_back(step.done);
                           means.push_back(step.loss);
                           EXPECT_FALSE(step.accuracy);
                           return step.done < 3;
                         }});
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.steps, 3);
  EXPECT_EQ(seen, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(means, std::vector<double>(result.losses.begin(), result.losses.end()));
  EXPECT_FALSE(t.fit(samples(8)).stopped);
}

// Logits are the input and an offset that is trained.
struct Offset : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const {
    return x + b.add_variable_input("offset", nn::zeros(), {3}, f32);
  }
};

TEST(Trainer, EvaluateCountsEachSampleOnce) {
  data::Samples set{HostTensor::of<float>({7, 3}, f32, {1,  0,  0,   //
                                                        0,  1,  0,   //
                                                        0,  0,  1,   //
                                                        0,  2,  1,   //
                                                        3,  2,  1,   //
                                                        -1, -2, -3,  //
                                                        0,  5,  6}),
                    HostTensor::of<int32_t>({7}, i32, {0, 1, 2, 0, 0, 2, 2}), "a test"};
  for (const int replicas : {1, 2}) {
    Trainer t = trainer(classifier(Offset(), f32_spec({2, 3}), {.eval_input = f32_spec({4, 3})}),
                        {}, replicas);
    std::vector<int64_t> batches;
    EXPECT_DOUBLE_EQ(t.evaluate(set, [&](int64_t done) { batches.push_back(done); }), 500.0 / 7);
    EXPECT_EQ(batches, replicas == 1 ? (std::vector<int64_t>{1, 2}) : std::vector<int64_t>{1});
  }
}

// Predictions are the input times a scale that is trained.
struct Scale : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor y = in["input"] * b.add_variable_input("scale", nn::ones(), {2}, f32);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"prediction", y}}};
    return {.losses = {mean_squared_error(y, in["target"])}, .predictions = {{"prediction", y}}};
  }
};

// By hand, for inputs x, targets t and scales s = 1: the differences x - t are (1, 1) and (2, 4).
// The mean of their squares is 22 / 4. The gradient by s[j] is the sum over the samples of
// 2 (x - t) x / 4: (1·1 + 2·3) / 2 = 3.5 and (1·2 + 4·4) / 2 = 9.
TEST(Trainer, RegressionHasTheMeanOfAllSquares) {
  const data::Samples set{HostTensor::of<float>({2, 2}, f32, {1, 2, 3, 4}),
                          HostTensor::of<float>({2, 2}, f32, {0, 1, 1, 0}), "a test"};
  const Network net(Scale(), {{"input", f32_spec({2, 2})}, {"target", f32_spec({2, 2})}});
  Trainer t = trainer(net, {.learning_rate = 1.0});
  const FitResult fit = t.fit(set, {.steps = 1});
  EXPECT_EQ(fit.loss, 5.5);
  EXPECT_FALSE(fit.accuracy);
  const HostTensor scale = t.session().read(t.training().variables["scale"]);
  EXPECT_EQ(std::vector<float>(scale.as<float>().begin(), scale.as<float>().end()),
            (std::vector<float>{1 - 3.5F, 1 - 9.0F}));
  expect_refused({
      {"evaluate", [&] { t.evaluate(set); },
       "evaluate: labels must be classes, int32, got float32; compare the predictions"},
      {"classes",
       [&] {
         t.fit({set.images, HostTensor(i32_spec({2})), "a test"});
       },
       "loader: the array for labels must be int32, got float32"},
      {"shapes",
       [&] {
         trainer(Network(Scale(), {{"input", f32_spec({2, 2})}, {"target", f32_spec({2})}}));
       },
       "mean_squared_error: the prediction must have the target's shape (2,), got (2, 2)"},
  });
}

TEST(Trainer, AScheduleSetsTheRateOfEachStep) {
  const data::Samples set = samples(8);
  const auto losses = [&](const LearningRateSchedule& schedule) {
    return trainer(model(), {.learning_rate = StreamedRate{}})
        .fit(set, {.steps = 6, .schedule = schedule})
        .losses;
  };
  const std::vector<float> fixed = trainer(model()).fit(set, {.steps = 6}).losses;
  EXPECT_EQ(losses({.peak = 0.5, .steps = 6}), fixed);
  EXPECT_NE(losses({.decay = Decay::kLinear, .peak = 0.5, .steps = 6}), fixed);
}

// Two losses of which one has the weight 0.25, and in training the scores and another prediction.
struct TwoLosses : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor hidden = ops::tanh(b.inlined("fc", nn::Linear(8), in["input"]));
    const Tensor logits = b.inlined("out", nn::Linear(3), hidden);
    Results all{.predictions = {{"hidden", ops::mean(hidden)}, {"logits", logits}}};
    if (in.mode() == nn::RunMode::kEvaluate) return all;
    all.losses = {cross_entropy(logits, in["labels"]),
                  {.name = "aside", .value = ops::mean(hidden * hidden), .weight = 0.25}};
    return all;
  }
};

Network two_losses() {
  return {TwoLosses(), {{"input", f32_spec({2, 6})}, {"labels", i32_spec({2})}}};
}

TEST(Trainer, ReportsLossesPredictionsAndAccuracyInEveryStrategy) {
  const data::Samples set = samples(24);
  const auto run = [&](Strategy strategy) {
    Trainer t =
        trainer(two_losses(), {.strategy = strategy, .accumulate = 3, .learning_rate = 0.5}, 2);
    std::vector<double> seen;
    const FitResult fit =
        t.fit(set, {.epochs = 20, .after_step = [&](const StepReport& step) {
                      const HostTensor& scores = step.prediction("logits");
                      EXPECT_EQ(scores.spec().shape, Shape({3, 2, 2, 3}));
                      EXPECT_EQ(step.loss_of("aside").spec().shape, Shape({3, 2}));
                      EXPECT_EQ(step.prediction("hidden").spec().shape, Shape({3, 2}));
                      EXPECT_TRUE(step.accuracy.has_value());
                      seen.push_back(step.accuracy.value_or(-1));
                      return true;
                    }});
    EXPECT_EQ(fit.parts.size(), 2u);
    EXPECT_EQ(fit.losses.size(), 40u * 6);
    for (size_t i = 0; i < fit.losses.size(); ++i)
      EXPECT_FLOAT_EQ(fit.losses[i], fit.parts[0][i] + 0.25F * fit.parts[1][i]);
    EXPECT_EQ(fit.accuracy, seen.back());
    EXPECT_GT(*std::max_element(seen.begin(), seen.end()),
              *std::min_element(seen.begin(), seen.end()));
    EXPECT_GT(t.evaluate(set), 0);
    return std::tuple(fit.losses, fit.parts, seen);
  };
  EXPECT_EQ(run(phased()), run(resident()));
}

// The scores of a step count for the labels of their own micro-batch and replica: a network whose
// logits are its input has an accuracy that is known.
TEST(Trainer, CountsRightAnswersOfEachStep) {
  struct Given : nn::Module {
    Results build(nn::Builder& b, const Inputs& in) const {
      const Tensor logits = Offset().build(b, in["input"]);
      if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", logits}}};
      return {.losses = {cross_entropy(logits, in["labels"])}, .predictions = {{"logits", logits}}};
    }
  };
  data::Samples set{HostTensor(f32_spec({16, 3})), HostTensor(i32_spec({16})), "a test"};
  const auto images = set.images.as<float>();
  for (size_t i = 0; i < 16; ++i) {
    set.labels.as<int32_t>()[i] = static_cast<int32_t>(i % 3);
    images[3 * i + (i < 10 ? i % 3 : (i + 1) % 3)] = 1;
  }
  const Network network(Given(), {{"input", f32_spec({2, 3})}, {"labels", i32_spec({2})}});
  Trainer t = trainer(network, {.accumulate = 4, .learning_rate = 1e-9}, 2);
  EXPECT_EQ(t.fit(set).accuracy, 62.5);
  EXPECT_EQ(t.fit(set, {.epochs = 0}).accuracy, std::nullopt);
}

TEST(Trainer, RefusesALossThatIsNotFinite) {
  data::Samples set = samples(2);
  set.images.as<float>()[0] = std::numeric_limits<float>::infinity();
  try {
    trainer(model()).fit(set);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kDiverged);
    EXPECT_TRUE(std::string(e.what()).starts_with("the loss of step 0 is ")) << e.what();
  }
}

TEST(Trainer, Refusals) {
  const auto fit = [](const StepOptions& step, int64_t n, const FitOptions& options) {
    return [=] { trainer(model(), step).fit(samples(n), options); };
  };
  expect_refused({
      {"too few samples", fit({}, 1, {}),
       "loader: the data must fill one batch of 2 samples, got 1"},
      {"a schedule without a stream", fit({}, 4, {.schedule = LearningRateSchedule{}}),
       "fit: a schedule requires StepOptions::learning_rate = StreamedRate{}"},
      {"a stream without a schedule", fit({.learning_rate = StreamedRate{}}, 4, {}),
       "fit: a program with a StreamedRate requires a schedule"},
      {"three fields",
       [] {
         struct Three : TwoLosses {
           Results build(nn::Builder& b, const Inputs& in) const {
             Results all = TwoLosses::build(b, in);
             all.predictions.push_back({"more", in["scale"] * 2.0});
             return all;
           }
         };
         const Network three(
             Three(),
             {{"input", f32_spec({2, 6})}, {"labels", i32_spec({2})}, {"scale", f32_spec({2, 1})}});
         trainer(three).fit(samples(4));
       },
       "fit: the network must read two fields, images and labels, got 'input', 'labels', 'scale'"},
      {"a loss of another dtype",
       [] {
         struct Half : TwoLosses {
           Results build(nn::Builder& b, const Inputs& in) const {
             Results all = TwoLosses::build(b, in);
             for (Loss& loss : all.losses)
               if (loss.name == "aside") loss.value = ops::cast(loss.value, f16);
             return all;
           }
         };
         trainer({Half(), {{"input", f32_spec({2, 6})}, {"labels", i32_spec({2})}}})
             .fit(samples(4));
       },
       "fit: loss 'aside' must be float32, got float16; cast it with ops::cast()"},
      {"an unknown prediction",
       [] {
         trainer(two_losses()).fit(samples(4), {.after_step = [](const StepReport& step) {
                                     step.prediction("score");
                                     return true;
                                   }});
       },
       "fit: prediction 'score' must be one that training returns, which are 'hidden', 'logits'"},
      {"an evaluation without scores",
       [] {
         struct Mean : TwoLosses {
           Results build(nn::Builder& b, const Inputs& in) const {
             Results all = TwoLosses::build(b, in);
             all.predictions.pop_back();
             return all;
           }
         };
         trainer({Mean(), {{"input", f32_spec({2, 6})}, {"labels", i32_spec({2})}}})
             .evaluate(samples(4));
       },
       "evaluate: a prediction must be float32 of shape (samples, classes), got 'eval_hidden'"},
      {"negative steps", fit({}, 4, {.steps = -1}), "fit: steps must be at least 0, got -1"},
      {"negative epochs", fit({}, 4, {.epochs = -2}), "fit: epochs must be at least 0, got -2"},
      {"no samples to test", [] { trainer(model()).evaluate(samples(0)); },
       "loader: the data must fill one batch of 1 samples, got 0"},
  });
}

}  // namespace
}  // namespace sluice::train
