#include "sluice/train/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sluice/base/test_refusals.h"
#include "sluice/data/samples.h"
#include "sluice/data/test_wait.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/reductions.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

// A layer that draws random numbers in training, and a layer after it.
class FitNet : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    x = ops::gelu(hidden_(b, x));
    x = b.inlined("dropout", nn::Dropout(0.25), x);
    return out_(b, x);
  }

 private:
  nn::Child<nn::Linear> hidden_{*this, "hidden", 8};
  nn::Child<nn::Linear> out_{*this, "out", 3};
};

// As a classifier, with the logits among the results of training.
class Scored : public FitNet {
 public:
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor x = FitNet::build(b, in["input"]);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", x, "labels"}}};
    return {.losses = {cross_entropy(x, in["labels"])}, .predictions = {{"logits", x, "labels"}}};
  }
};

Network scored(int64_t batch = 2) {
  return {Scored(),
          {{.name = "input", .spec = f32_spec({batch, 6})},
           {.name = "labels", .spec = i32_spec({batch})}}};
}

Options on_one_thread(Options options = {}) {
  options.session = {.device = cpu_device({.threads = 1})};
  return options;
}

DataLoader loader(const Options& options, int64_t n, DataLoaderOptions more = {}) {
  more.batch_size = 2;
  more.shuffle = data::Shuffle::kYes;
  return DataLoader(options, test::dataset(n), more);
}

TEST(Fit, ASecondCallContinuesTheFirst) {
  const Options options = on_one_thread({.output = Output::all(), .learning_rate = 0.5, .seed = 3});
  const auto model = [&] { return training_model(scored(), options); };
  TrainingModel whole = model(), parts = model();
  DataLoader data = loader(options, 9);  // Four calls an epoch, and a sample that is dropped.
  const FitResult all = fit(whole, data, {.calls = 10});
  EXPECT_EQ(all.losses.size(), 10u);
  EXPECT_EQ(all.calls, 10);
  EXPECT_EQ(all.updates, 10);
  EXPECT_EQ(all.loss, all.losses.back());
  std::vector<float> losses = fit(parts, data, {.calls = 3}).losses;
  DataLoader other = loader(options, 9, {.workers = 2});
  const FitResult rest = fit(parts, other, {.calls = 7});
  losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
  EXPECT_EQ(losses, all.losses);
}

TEST(Fit, ListsFrozenWeightsOnce) {
  const Options options = on_one_thread();
  const auto text = [&](const nn::Optimizer& optimizer, Show show) {
    TrainingModel model = training_model(scored(), options, optimizer);
    DataLoader data = loader(options, 8);
    testing::internal::CaptureStderr();
    fit(model, data, {.epochs = 2, .show = show});
    return testing::internal::GetCapturedStderr();
  };
  const auto grouped =
      nn::Optimizer::grouped({{nn::keys_unlike({"hidden.*"}), nn::Optimizer::sgd()}});
  const std::string line = "Frozen weights: hidden.weight, hidden.bias\n";
  const std::string shown = text(grouped, Show::kProgress);
  EXPECT_NE(shown.find(line), std::string::npos) << shown;
  EXPECT_EQ(shown.find(line), shown.rfind(line)) << shown;
  EXPECT_EQ(text(grouped, Show::kNo), "");
  EXPECT_EQ(text(nn::Optimizer::sgd(), Show::kProgress).find("Frozen"), std::string::npos);
}

TEST(Fit, UpdatesHaveTheSameBitsInCallsOfAnyLength) {
  const auto run = [](int64_t iterations) {
    const Options options = on_one_thread({.accumulate = 3,
                                           .device_iterations = iterations,
                                           .replicas = 2,
                                           .output = Output::all(),
                                           .learning_rate = 0.5,
                                           .seed = 5});
    TrainingModel model = training_model(scored(), options, nn::Optimizer::adam());
    DataLoader data = loader(options, 62);
    std::vector<int64_t> calls;
    const FitResult result =
        fit(model, data, {.calls = 4 / iterations, .after_call = [&](const CallReport& report) {
                            calls.push_back(report.call);
                            return true;
                          }});
    EXPECT_EQ(result.updates, 4);
    EXPECT_EQ(calls.size(), static_cast<size_t>(4 / iterations));
    EXPECT_EQ(calls.back(), 4 / iterations);
    EXPECT_EQ(result.losses.size(), 4u * 3 * 2);
    return std::pair(result.losses, model.weight("out.weight").to_doubles());
  };
  const auto expected = run(1);
  EXPECT_EQ(run(2), expected);
  EXPECT_EQ(run(4), expected);
}

// Twelve updates of a schedule, in calls of 1, 2, 3 or 6.
TEST(Fit, EachUpdateOfACallHasItsOwnRate) {
  const auto run = [](const Strategy& strategy, int64_t iterations,
                      const std::optional<LearningRateSchedule>& schedule) {
    const Options options = on_one_thread({.strategy = strategy,
                                           .accumulate = 2,
                                           .device_iterations = iterations,
                                           .replicas = 2,
                                           .output = Output::all(),
                                           .learning_rate = 0.5,
                                           .seed = 3});
    TrainingModel model = training_model(scored(), options);
    DataLoader data = loader(options, 48);
    const FitResult result = fit(model, data, {.calls = 12 / iterations, .schedule = schedule});
    EXPECT_EQ(result.updates, 12);
    return std::pair(result.losses, model.weight("out.weight").to_doubles());
  };
  const LearningRateSchedule schedule{Decay::kLinear, 0.5, 4, 12};
  const auto want = run(resident(), 1, schedule);
  EXPECT_NE(run(resident(), 1, {}), want);
  for (const Strategy& strategy :
       {Strategy(resident()), Strategy(sharded()), Strategy(pipelined())}) {
    for (const int64_t iterations : {2, 3, 6}) EXPECT_EQ(run(strategy, iterations, schedule), want);
  }
  EXPECT_EQ(run(phased(), 1, schedule), want);
}

// The command line has the same rates (--help).
TEST(Fit, AnOptimizerHasADefaultRate) {
  const std::pair<nn::Optimizer, double> rows[] = {
      {nn::Optimizer::sgd(), 0.05},     {nn::Optimizer::sgd({.momentum = 0.9}), 0.005},
      {nn::Optimizer::adam(), 0.001},   {nn::Optimizer::adamw(), 0.001},
      {nn::Optimizer::adamax(), 0.002}, {nn::Optimizer::lamb(), 0.002},
      {nn::Optimizer::rmsprop(), 0.001}};
  const auto run = [](const nn::Optimizer& optimizer, const LearningRate& rate) {
    const Options options = on_one_thread({.learning_rate = rate});
    TrainingModel model = training_model(scored(), options, optimizer);
    DataLoader data = loader(options, 8);
    fit(model, data);
    Ir ir;
    EXPECT_EQ(build_training(ir, scored(), optimizer, options).constant_rate,
              optimizer.default_learning_rate());
    return model.weight("out.weight").to_doubles();
  };
  for (const auto& [optimizer, rate] : rows) {
    EXPECT_EQ(optimizer.default_learning_rate(), rate);
    EXPECT_EQ(run(optimizer, {}), run(optimizer, rate)) << rate;
  }
  const auto grouped =
      nn::Optimizer::grouped({{nn::keys_like({"*.bias"}), nn::Optimizer::sgd()},
                              {nn::keys_unlike({"*.bias"}), nn::Optimizer::adam()}});
  expect_refused({{"groups", [&] { training_model(scored(), on_one_thread(), grouped); },
                   "parameter groups must have one default learning rate, got 0.05 and 0.001"}});
}

TEST(Fit, EpochsEndWithTheirValidation) {
  const Options options = on_one_thread({.learning_rate = 0.1});
  TrainingModel model = training_model(scored(), options);
  Options apart = options;
  apart.device_iterations = 2;
  InferenceModel test = inference_model(model, apart);
  DataLoader data = loader(options, 8);
  DataLoader tests(apart, test::dataset(10), {.batch_size = 2});
  const FitResult result =
      fit(model, data, {.epochs = 3, .validation_model = &test, .validation_data = &tests});
  EXPECT_EQ(result.calls, 12);
  ASSERT_EQ(result.validations.size(), 3u);
  EXPECT_EQ(result.validations[0].samples, 8);
  EXPECT_EQ(result.validations[0].dropped, 2);
  EXPECT_TRUE(result.validations[2]["accuracy"].has_value());
}

TEST(Evaluate, CountsEachSampleOnce) {
  const Options options = on_one_thread({.device_iterations = 3});
  InferenceModel model = inference_model(scored(), options);
  const auto percentage = [&](data::Remainder remainder, int64_t n) {
    DataLoader data(options, test::dataset(n), {.batch_size = 2, .remainder = remainder});
    return evaluate(model, data);
  };
  // 13 samples: two items of six, and one sample.
  const Evaluation all = percentage(data::Remainder::kKeep, 13);
  EXPECT_EQ(all.samples, 13);
  EXPECT_EQ(all.dropped, 0);
  const Evaluation max = percentage(data::Remainder::kDrop, 13);
  EXPECT_EQ(max.samples, 12);
  EXPECT_EQ(max.dropped, 1);
  // The one sample is right or wrong.
  const double right = *all["accuracy"] * 13 / 100 - *max["accuracy"] * 12 / 100;
  EXPECT_TRUE(std::abs(right) < 1e-6 || std::abs(right - 1) < 1e-6) << right;
}

TEST(Evaluate, CountsTheLastMicroBatchIfOnlyItIsReturned) {
  const Options options = on_one_thread({.device_iterations = 3, .output = Output::final()});
  InferenceModel model = inference_model(scored(), options);
  DataLoader data(options, test::dataset(12), {.batch_size = 2});
  EXPECT_EQ(evaluate(model, data).samples, 4);
}

// Two losses; one of them has the weight 0.25.
struct TwoLosses : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor hidden = ops::tanh(b.inlined("fc", nn::Linear(8), in["input"]));
    const Tensor logits = b.inlined("out", nn::Linear(3), hidden);
    Results all{.predictions = {{"hidden", ops::mean(hidden)}, {"logits", logits, "labels"}}};
    if (in.mode() == nn::RunMode::kEvaluate) return all;
    all.losses = {cross_entropy(logits, in["labels"]),
                  {.name = "aside", .value = ops::mean(hidden * hidden), .weight = 0.25}};
    return all;
  }
};

Network two_losses() {
  return {TwoLosses(), {{"input", f32_spec({2, 6})}, {"labels", i32_spec({2})}}};
}

TEST(Fit, ReportsLossesPredictionsAndAccuracyInEveryStrategy) {
  const auto run = [](const Strategy& strategy) {
    const Options options = on_one_thread({.strategy = strategy,
                                           .accumulate = 3,
                                           .replicas = 2,
                                           .output = Output::all(),
                                           .learning_rate = 0.5});
    TrainingModel model = training_model(two_losses(), options);
    InferenceModel test = inference_model(model);
    std::vector<double> seen;
    const FitResult result =
        fit(model, test::dataset(24), {.epochs = 20, .after_call = [&](const CallReport& report) {
                                         const HostTensor& scores = report.result("logits");
                                         EXPECT_EQ(scores.shape(), Shape({3, 2, 2, 3}));
                                         EXPECT_EQ(report.result("aside").shape(), Shape({3, 2}));
                                         EXPECT_TRUE(report.accuracy.has_value());
                                         seen.push_back(report.accuracy.value_or(-1));
                                         return true;
                                       }});
    EXPECT_EQ(result.parts.size(), 2u);
    EXPECT_EQ(result.losses.size(), 40u * 6);
    for (size_t i = 0; i < result.losses.size(); ++i)
      EXPECT_FLOAT_EQ(result.losses[i], result.parts[0][i] + 0.25F * result.parts[1][i]);
    EXPECT_EQ(result.accuracy, seen.back());
    EXPECT_GT(*std::max_element(seen.begin(), seen.end()),
              *std::min_element(seen.begin(), seen.end()));
    EXPECT_GT(evaluate(test, test::dataset(24))["accuracy"].value_or(0), 0);
    return std::tuple(result.losses, result.parts, seen);
  };
  EXPECT_EQ(run(phased()), run(resident()));
}

// Logits are the input and an offset that is trained.
struct Offset : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor logits = in["input"] + b.add_variable_input("offset", nn::zeros(), {3}, f32);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", logits, "labels"}}};
    return {.losses = {cross_entropy(logits, in["labels"])},
            .predictions = {{"logits", logits, "labels"}}};
  }
};

Network offset() {
  return {Offset(),
          {{.name = "input", .spec = f32_spec({2, 3}), .eval_spec = f32_spec({4, 3})},
           {.name = "labels", .spec = i32_spec({2})}}};
}

// The scores of a call count for the labels of their own micro-batch and replica.
TEST(Fit, CountsRightAnswersOfEachCall) {
  data::Samples set{HostTensor(f32_spec({16, 3})), HostTensor(i32_spec({16})), "a test"};
  const auto images = set.images.as<float>();
  for (size_t i = 0; i < 16; ++i) {
    set.labels.as<int32_t>()[i] = static_cast<int32_t>(i % 3);
    images[3 * i + (i < 10 ? i % 3 : (i + 1) % 3)] = 1;
  }
  const Options options = on_one_thread(
      {.accumulate = 4, .replicas = 2, .output = Output::all(), .learning_rate = 1e-9});
  TrainingModel model = training_model(offset(), options);
  EXPECT_EQ(fit(model, data::from_samples(set)).accuracy, 62.5);
  EXPECT_EQ(fit(model, data::from_samples(set), {.epochs = 0}).accuracy, std::nullopt);
  // The last micro-batch alone: samples 12 to 15, which are wrong.
  Options last = options;
  last.output = Output::final();
  TrainingModel other = training_model(offset(), last);
  DataLoader data(last, data::from_samples(set), {.batch_size = 2});
  EXPECT_EQ(fit(other, data).accuracy, 0);
}

TEST(Evaluate, CountsEachSampleOfReplicasOnce) {
  const data::Samples set{HostTensor::of<float>({7, 3}, f32, {1,  0,  0,   //
                                                              0,  1,  0,   //
                                                              0,  0,  1,   //
                                                              0,  2,  1,   //
                                                              3,  2,  1,   //
                                                              -1, -2, -3,  //
                                                              0,  5,  6}),
                          HostTensor::of<int32_t>({7}, i32, {0, 1, 2, 0, 0, 2, 2}), "a test"};
  for (const int replicas : {1, 2}) {
    TrainingModel model = training_model(offset(), on_one_thread({.replicas = replicas}));
    InferenceModel test = inference_model(model);
    const Evaluation evaluation = evaluate(test, data::from_samples(set));
    EXPECT_EQ(evaluation.samples, 7);
    EXPECT_DOUBLE_EQ(evaluation["accuracy"].value_or(0), 500.0 / 7);
  }
}

// A loss that grows without a limit.
TEST(Fit, ALossThatIsNotFiniteEndsIt) {
  const Options options = on_one_thread({.output = Output::all(), .learning_rate = 1e30});
  TrainingModel model = training_model(scored(), options);
  DataLoader data = loader(options, 40);
  expect_refused({{"diverged", [&] { fit(model, data, {.epochs = 5}); },
                   "a smaller learning rate may help", ErrorKind::kDiverged}});
}

// Four updates of three micro-batches on two replicas.
TEST(Fit, CountsTheLossesThatTheOutputNames) {
  const auto run = [](const Output& output, double rate = 0.5) {
    const Options options = on_one_thread({.accumulate = 3,
                                           .device_iterations = 4,
                                           .replicas = 2,
                                           .output = output,
                                           .learning_rate = rate});
    TrainingModel model = training_model(scored(), options);
    DataLoader data = loader(options, 48);
    return fit(model, data);
  };
  const FitResult all = run(Output::all());
  ASSERT_EQ(all.losses.size(), 24u);
  const auto part = [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
    return std::vector<float>(all.losses.begin() + begin, all.losses.begin() + end);
  };
  std::vector<float> odd = part(6, 12);  // Updates 1 and 3.
  for (const float loss : part(18, 24)) odd.push_back(loss);
  EXPECT_EQ(run(Output::every(2)).losses, odd);
  EXPECT_EQ(run(Output::every(4)).losses, part(18, 24));
  EXPECT_EQ(run(Output::final()).losses, part(22, 24));
  const FitResult sum = run(Output::sum());
  EXPECT_EQ(sum.losses.size(), 2u);
  EXPECT_NEAR(sum.loss, all.loss, 1e-6);
  const auto diverges = [&](const Output& output, const char* text) {
    expect_refused({{text, [&] { run(output, 1e30); }, text, ErrorKind::kDiverged}});
  };
  diverges(Output::all(), "the loss of step 1 is");
  diverges(Output::every(1), "the loss of step 1 is");
  diverges(Output::every(2), "the loss of step 1 is");
  diverges(Output::every(4), "the loss of step 3 is");
  diverges(Output::final(), "the loss of step 3 is");
}

TEST(Fit, ReportsWhatIsShown) {
  const auto said = [](Show show) {
    const Options options = on_one_thread({.accumulate = 2});
    TrainingModel model = training_model(scored(), options);
    DataLoader data = loader(options, 9);
    testing::internal::CaptureStderr();
    fit(model, data, {.epochs = 2, .show = show});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said(Show::kNo), "");
  const std::string progress = said(Show::kProgress), all = said(Show::kAll);
  EXPECT_THAT(progress, testing::ContainsRegex("^Epoch 1/2\n(.*\n)*Epoch 2/2\n"));
  EXPECT_THAT(progress, testing::HasSubstr("Loss:"));
  EXPECT_THAT(progress, testing::Not(testing::HasSubstr("Graph compilation")));
  EXPECT_THAT(all, testing::HasSubstr("Graph compilation: 100% ["));
  EXPECT_THAT(all, testing::HasSubstr(
                       "\nmicro-batch 2 x accumulate 2 = 4 samples a call, 2 calls an epoch, 1 "
                       "samples dropped\n"));
  EXPECT_THAT(all, testing::HasSubstr("\nEpoch 1/2\n"));
}

// Workers wait while `depth` items are in memory.
TEST(DataLoader, HoldsItemsToItsDepth) {
  for (const int depth : {1, 2, 5}) {
    test::LimitedCount calls;
    const data::Dataset counted = test::dataset(64).map([&](data::Element e) {
      calls.add();
      return e;
    });
    const Options options = on_one_thread({.accumulate = 2});
    DataLoader data(options, counted, {.batch_size = 2, .workers = 2, .depth = depth});
    const int64_t first = calls.count();  // Number of calls that computed the specs.
    for (int taken = 0; taken < 10; ++taken) {
      calls.limit(first + 4 * (taken + depth));  // The item that is taken counts.
      data.next();
      EXPECT_TRUE(calls.reaches_limit()) << calls.count() << " calls, depth " << depth;
    }
  }
}

TEST(Fit, StopsWhenItIsAsked) {
  const Options options = on_one_thread();
  TrainingModel model = training_model(scored(), options);
  DataLoader data = loader(options, 40);
  const FitResult result =
      fit(model, data, {.epochs = 5, .after_call = [](const CallReport& r) { return r.call < 7; }});
  EXPECT_EQ(result.calls, 7);
  EXPECT_TRUE(result.stopped);
}

TEST(Fit, SavesWhileItTrains) {
  const Options options = on_one_thread({.learning_rate = 0.1});
  const std::string file = testing::TempDir() + "fit_test.safetensors";
  TrainingModel model = training_model(scored(), options);
  DataLoader data = loader(options, 12);
  std::vector<double> third;
  fit(model, data,
      {.calls = 5, .save = file, .save_every = 3, .after_call = [&](const CallReport& r) {
         if (r.call == 3) third = model.weight("out.weight").to_doubles();
         return true;
       }});
  TrainingModel saved = training_model(scored(), options);
  saved.load(file);
  EXPECT_EQ(saved.weight("out.weight").to_doubles(), third);
  EXPECT_NE(model.weight("out.weight").to_doubles(), third);
}

TEST(TrainingModel, LoadsWeightsWithoutTheStateOfTheOptimizer) {
  const Options options = on_one_thread({.learning_rate = 0.1});
  const std::string file = testing::TempDir() + "fit_test_fresh.safetensors";
  const auto weight = [](TrainingModel& m) { return m.weight("out.weight").to_doubles(); };
  TrainingModel plain = training_model(scored(), options);
  DataLoader data = loader(options, 12);
  fit(plain, data, {.calls = 3});
  plain.save(file);
  // A file of another optimizer has no state.
  TrainingModel other = training_model(scored(), options, nn::Optimizer::adam());
  const std::vector<double> before = weight(other);
  expect_refused({{"state", [&] { other.load(file); },
                   "must have the optimizer's state 'hidden.bias.first_order', got the weights "
                   "alone; load_weights() (--fresh-optimizer) starts the state anew",
                   ErrorKind::kBadFile}});
  EXPECT_EQ(weight(other), before);
  EXPECT_TRUE(other.load_weights(file).empty());
  EXPECT_EQ(weight(other), weight(plain));
  // The state in a file is not read: the first update is that of a new optimizer.
  fit(other, data, {.calls = 4});
  other.save(file);
  TrainingModel fresh = training_model(scored(), options, nn::Optimizer::adam());
  TrainingModel restored = training_model(scored(), options, nn::Optimizer::adam());
  EXPECT_TRUE(fresh.load_weights(file).empty());
  restored.load(file);
  EXPECT_EQ(weight(fresh), weight(restored));
  EXPECT_EQ(fresh.session().read(fresh.programs().state["out.weight.first_order"]).to_doubles(),
            std::vector<double>(24, 0.0));
  EXPECT_NE(
      restored.session().read(restored.programs().state["out.weight.first_order"]).to_doubles(),
      std::vector<double>(24, 0.0));
  // Weights of another network are refused as before.
  TrainingModel two = training_model(two_losses(), options, nn::Optimizer::adam());
  expect_refused(
      {{"network", [&] { two.load(file); }, "variable 'fc.", ErrorKind::kBadFile},
       {"weights", [&] { two.load_weights(file); }, "variable 'fc.", ErrorKind::kBadFile}});
}

TEST(Fit, ARateFollowsItsSchedule) {
  const Options options = on_one_thread({.learning_rate = StreamedRate{}});
  TrainingModel model = training_model(scored(), options);
  DataLoader data = loader(options, 12);
  const LearningRateSchedule schedule{.decay = Decay::kLinear, .peak = 0.1, .steps = 4};
  fit(model, data, {.calls = 4, .schedule = schedule});
  TrainingModel other = training_model(scored(), options);
  for (int64_t k = 0; k < 4; ++k) {
    other.set_learning_rate(schedule.at(k));
    fit(other, data, {.calls = 1});
  }
  EXPECT_EQ(other.weight("out.weight").to_doubles(), model.weight("out.weight").to_doubles());
}

TEST(Fit, Refusals) {
  const Options options = on_one_thread({.accumulate = 10, .device_iterations = 10});
  TrainingModel model = training_model(scored(40), options);
  const auto data = [](const Options& o, int64_t batch, int64_t n) {
    return DataLoader(o, test::dataset(n), {.batch_size = batch});
  };
  Options other = options;
  other.device_iterations = 5;
  expect_refused({
      {"too little data", [&] { data(options, 40, 900); },
       "0 full batches: micro-batch 40 x device iterations 10 x accumulate 10 = 4000, the dataset "
       "has 900"},
      {"another product",
       [&] {
         DataLoader d = data(other, 40, 4000);
         fit(model, d);
       },
       "fit: an item of the loader must have the samples of a call, micro-batch 40 x device "
       "iterations 10 x accumulate 10 = 4000, got micro-batch 40 x device iterations 5 x "
       "accumulate 10 = 2000"},
      {"batch", [&] { data(options, 0, 10); }, "loader: batch_size must be at least 1, got 0"},
      {"epochs",
       [&] {
         DataLoader d = data(options, 40, 4000);
         fit(model, d, {.epochs = -1});
       },
       "fit: epochs must be at least 0, got -1"},
      {"calls",
       [&] {
         DataLoader d = data(options, 40, 4000);
         fit(model, d, {.calls = -1});
       },
       "fit: calls must be at least 0, got -1"},
      {"save_every",
       [&] {
         DataLoader d = data(options, 40, 4000);
         fit(model, d, {.save_every = 3});
       },
       "fit: save_every requires `save`"},
      {"a loss of another dtype",
       [&] {
         struct Half : TwoLosses {
           Results build(nn::Builder& b, const Inputs& in) const {
             Results all = TwoLosses::build(b, in);
             for (Loss& loss : all.losses)
               if (loss.name == "aside") loss.value = ops::cast(loss.value, f16);
             return all;
           }
         };
         TrainingModel half = training_model(
             {Half(), {{"input", f32_spec({2, 6})}, {"labels", i32_spec({2})}}}, on_one_thread());
         fit(half, test::dataset(4));
       },
       "fit: loss 'aside' must be a float32 scalar, got () float16; cast it with ops::cast()"},
      {"an unknown result",
       [&] {
         TrainingModel two = training_model(two_losses(), on_one_thread());
         fit(two, test::dataset(4), {.after_call = [](const CallReport& report) {
               report.result("score");
               return true;
             }});
       },
       "fit: a result must be one of loss, aside, hidden, logits, got 'score'"},
      {"half a validation",
       [&] {
         DataLoader d = data(options, 40, 4000);
         fit(model, d, {.validation_data = &d});
       },
       "fit: a validation requires a model and data, got one of them"},
  });
}

}  // namespace
}  // namespace sluice::train
