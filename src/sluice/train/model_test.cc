#include "sluice/train/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/losses.h"
#include "sluice/train/step_arrays.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

using namespace test;

// Two blocks; the first draws in training.
class ModelNet : public nn::Module {
 public:
  Results build(nn::Builder& b, const Inputs& in) const {
    Tensor x = ops::gelu(hidden_(b, in["input"]));
    x = b.inlined("dropout", nn::Dropout(0.25), x);
    x = out_(b, x);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", x, "labels"}}};
    return {.losses = {cross_entropy(x, in["labels"])}, .predictions = {{"logits", x, "labels"}}};
  }

 private:
  nn::Child<nn::Linear> hidden_{*this, "hidden", 8};
  nn::Child<nn::Linear> out_{*this, "out", kClasses};
};

Network model_network() {
  return {ModelNet(),
          {{.name = "input",
            .spec = f32_spec({kMicroBatch, kFeatures}),
            .eval_spec = f32_spec({4, kFeatures})},
           {.name = "labels", .spec = i32_spec({kMicroBatch})}}};
}

Options on_two_devices(Options options) {
  options.session = {.device = cpu_device({.threads = 1}),
                     .more_devices = {cpu_device({.threads = 1})}};
  return options;
}

std::vector<Strategy> strategies() {
  return {resident(), sharded("hidden", Stage("dropout", "out")),
          pipelined("hidden", Stage("dropout", "out"))};
}

// The rows [first, first + n) of an array.
std::vector<float> rows(const HostTensor& t, int64_t first, int64_t n) {
  const auto values = t.as<float>();
  const size_t width = values.size() / static_cast<size_t>(t.shape()[0]);
  const auto part =
      values.subspan(static_cast<size_t>(first) * width, static_cast<size_t>(n) * width);
  return {part.begin(), part.end()};
}

std::vector<float> floats(const HostTensor& t) { return rows(t, 0, t.shape()[0]); }

void refused(const std::string& text, const std::function<void()>& act) {
  expect_refused({{text, act, text}});
}

TEST(TrainingModel, ReturnsTheMicroBatchesThatItsOutputNames) {
  constexpr int64_t kD = 6, kN = 2, kR = 2, kCall = kMicroBatch * kD * kN * kR;
  for (const Strategy& strategy : strategies()) {
    const auto results = [&](const std::optional<Output>& output) {
      TrainingModel model = training_model(model_network(), on_two_devices({.strategy = strategy,
                                                                            .accumulate = kN,
                                                                            .device_iterations = kD,
                                                                            .replicas = kR,
                                                                            .output = output,
                                                                            .seed = 3}));
      model(samples(kCall));
      return model(samples(kCall, 1));
    };
    const data::Element all = results(Output::all());
    ASSERT_EQ(all["logits"].shape(), Shape({kCall, kClasses}));
    ASSERT_EQ(all["loss"].shape(), Shape({kD * kN * kR}));
    const auto expected = [&](int64_t update, int64_t n) {
      return rows(all["logits"], update * kN * kR * kMicroBatch, n);
    };
    const data::Element last = results({});  // The default.
    EXPECT_EQ(last["logits"].shape(), Shape({kR * kMicroBatch, kClasses}));
    EXPECT_EQ(floats(last["logits"]),
              rows(all["logits"], kCall - kR * kMicroBatch, kR * kMicroBatch));
    EXPECT_EQ(floats(last["loss"]), rows(all["loss"], kD * kN * kR - kR, kR));
    const data::Element third = results(Output::every(3));
    ASSERT_EQ(third["logits"].shape(), Shape({2 * kN * kR * kMicroBatch, kClasses}));
    EXPECT_EQ(third["loss"].shape(), Shape({2 * kN * kR}));
    EXPECT_EQ(rows(third["logits"], 0, kN * kR * kMicroBatch), expected(2, kN * kR * kMicroBatch));
    EXPECT_EQ(rows(third["logits"], kN * kR * kMicroBatch, kN * kR * kMicroBatch),
              expected(5, kN * kR * kMicroBatch));
    const data::Element sum = results(Output::sum());
    ASSERT_EQ(sum["loss"].shape(), Shape({kR}));
    for (int64_t r = 0; r < kR; ++r) {
      double total = 0;
      for (int64_t k = 0; k < kD * kN; ++k) total += rows(all["loss"], k * kR + r, 1)[0];
      EXPECT_NEAR(rows(sum["loss"], r, 1)[0], total, 1e-5);
    }
    EXPECT_EQ(sum["logits"].shape(), Shape({kR * kMicroBatch, kClasses}));
  }
}

// A network may ask for the sum of each update; the output of a model then changes nothing.
TEST(TrainingModel, SumsOfUpdatesAreAllReturned) {
  struct Summed : ModelNet {
    Results build(nn::Builder& b, const Inputs& in) const {
      Results all = ModelNet::build(b, in);
      for (Loss& loss : all.losses) loss.writing.form = Writing::Reduction::kSum;
      return all;
    }
  };
  const Network summed(Summed(), model_network().fields());
  for (const int64_t accumulate : {1, 3}) {
    TrainingModel model =
        training_model(summed, on_two_devices({.accumulate = accumulate, .device_iterations = 4}));
    EXPECT_EQ(model(samples(8 * accumulate))["loss"].shape(), Shape({4})) << accumulate;
  }
}

TEST(TrainingModel, ProgramsHaveTheReplicasOfTheirIr) {
  Ir ir(2);
  refused("training: replicas must be those of the Ir, 2, or left out, got 3",
          [&] { build_training(ir, model_network(), nn::Optimizer::sgd(), {.replicas = 3}); });
}

TEST(TrainingModel, ReturnsAScalarOfOneMicroBatchWithoutAnAxis) {
  TrainingModel model = training_model(model_network(), on_two_devices({.accumulate = 3}));
  EXPECT_EQ(model(samples(6))["loss"].shape(), Shape());
  TrainingModel all = training_model(model_network(), on_two_devices({.output = Output::all()}));
  EXPECT_EQ(all(samples(2))["loss"].shape(), Shape());
}

TEST(TrainingModel, PhasesReturnTheMicroBatchesThatTheirOutputNames) {
  const auto results = [](const Options& options) {
    TrainingModel model = training_model(model_network(), on_two_devices(options));
    model(samples(16));
    return model(samples(16, 1));
  };
  Options resident{.accumulate = 2, .device_iterations = 2, .replicas = 2};
  for (const TensorLocations& locations : {TensorLocations(), TensorLocations::phased()}) {
    for (const IoMode mode : {IoMode::kIo, IoMode::kIoOverlapped}) {
      Options options = resident;
      options.strategy = phased();
      options.locations = locations;
      options.io_mode = mode;
      for (const auto& output : {std::optional<Output>(), std::optional(Output::all()),
                                 std::optional(Output::sum()), std::optional(Output::every(2))}) {
        options.output = resident.output = output;
        const data::Element own = results(options), expected = results(resident);
        for (const char* name : {"loss", "logits"})
          EXPECT_TRUE(own[name].same_bits(expected[name])) << name;
      }
    }
  }
}

// The weights after 12 updates are the same for any number of updates a call.
TEST(TrainingModel, DeviceIterationsKeepTheBits) {
  const auto trained = [](const Strategy& strategy, int64_t iterations, const Output& output) {
    TrainingModel model = training_model(model_network(),
                                         on_two_devices({.strategy = strategy,
                                                         .accumulate = 2,
                                                         .device_iterations = iterations,
                                                         .output = output,
                                                         .learning_rate = 0.1,
                                                         .seed = 5}),
                                         nn::Optimizer::adamw());
    const int64_t each = kMicroBatch * 2 * iterations;
    for (int64_t call = 0; call < 12 / iterations; ++call) model(samples(each, call * each));
    EXPECT_EQ(model.updates(), 12);
    return floats(model.weight("hidden.weight"));
  };
  const std::vector<float> expected = trained(resident(), 1, Output::all());
  for (const Strategy& strategy : strategies()) {
    for (const int64_t iterations : {2, 12}) {
      for (const Output& output : {Output::all(), Output::final(), Output::sum()})
        EXPECT_EQ(trained(strategy, iterations, output), expected);
    }
  }
}

TEST(TrainingModel, ARateThatChangesHasTheBitsOfACompiledOne) {
  const std::function<nn::Optimizer()> makers[] = {
      [] { return nn::Optimizer::sgd({.momentum = 0.9}); },
      [] { return nn::Optimizer::adamw(); },
      [] { return nn::Optimizer::lamb(); },
      [] { return nn::Optimizer::rmsprop(); },
  };
  for (const auto& make : makers) {
    Options options = on_two_devices({.learning_rate = 0.01});
    Ir ir(1);
    const Training t = build_training(ir, model_network(), make(), options);
    Session session(ir, options.session);
    const data::Element batch = samples(kMicroBatch);
    TrainingModel model = training_model(model_network(), options, make());
    HostTensor seed(TensorSpec{{2}, u32, {}});
    for (int64_t update = 0; update < 3; ++update) {
      model(batch);
      fill_seeds(seed, options.seed, update, 1);
      session.run({{t.fields[0], batch["input"]}, {t.fields[1], batch["labels"]}, {*t.seed, seed}},
                  "train");
    }
    EXPECT_TRUE(model.weight("out.weight").same_bits(session.read(t.variables["out.weight"])));
  }
}

TEST(TrainingModel, OptimizersChangeTheirRateAlone) {
  TrainingModel slow = training_model(model_network(), on_two_devices({.learning_rate = 0.1}),
                                      nn::Optimizer::sgd({.momentum = 0.9}));
  TrainingModel model = training_model(model_network(), on_two_devices({.learning_rate = 0.3}),
                                       nn::Optimizer::sgd({.momentum = 0.9}));
  model.set_optimizer(nn::Optimizer::sgd({.momentum = 0.9}), 0.1);
  slow(samples(2));
  model(samples(2));
  EXPECT_EQ(floats(model.weight("out.weight")), floats(slow.weight("out.weight")));
  model.set_learning_rate(0);
  const std::vector<float> before = floats(model.weight("out.weight"));
  model(samples(2));
  EXPECT_EQ(floats(model.weight("out.weight")), before);
  for (const auto& other : {nn::Optimizer::sgd({.momentum = 0.5}), nn::Optimizer::adam()}) {
    refused("set_optimizer: the update rules must be those of the model",
            [&] { model.set_optimizer(other, 0.1); });
  }
  refused("set_learning_rate: the rate must be a finite float32 of at least 0, got -1",
          [&] { model.set_learning_rate(-1); });
  TrainingModel streamed =
      training_model(model_network(), on_two_devices({.learning_rate = StreamedRate{}}));
  refused("must have a rate; call set_learning_rate()", [&] { streamed(samples(2)); });
}

TEST(TrainingModel, KeepsItsOptions) {
  Options options = on_two_devices({.accumulate = 2});
  TrainingModel model = training_model(model_network(), options);
  options.accumulate = 7;
  EXPECT_EQ(model.options().accumulate, 2);
  EXPECT_EQ(model.call_size().samples(), 4);
  Options copy = model.options();
  copy.output = Output::sum();
  EXPECT_FALSE(model.options().output.has_value());
}

TEST(TrainingModel, TakesTuplesAndNamedFieldsInAnyOrder) {
  const data::Element named = samples(2);
  const auto loss = [&](const data::Element& e) {
    TrainingModel model = training_model(model_network(), on_two_devices({}));
    return floats(model(e)["loss"].reshaped({1}));
  };
  const auto expected = loss(named);
  EXPECT_EQ(loss({named["input"], named["labels"]}), expected);
  EXPECT_EQ(loss({{"labels", named["labels"]},
                  {"other", HostTensor::scalar(1)},
                  {"input", named["input"]}}),
            expected);
  EXPECT_EQ(loss({named["input"].reshaped({2, 2, 3}), named["labels"]}), expected);
}

TEST(TrainingModel, RefusesOtherSamples) {
  TrainingModel model =
      training_model(model_network(), on_two_devices({.accumulate = 3, .device_iterations = 2}));
  const data::Element good = samples(12);
  data::Element twice = good;
  twice.arrays.push_back(good["input"]);
  twice.names.push_back("input");
  const std::vector<std::pair<data::Element, const char*>> cases = {
      {twice, "samples: the fields must have different names, got 'input' twice"},
      {samples(11),
       "train: the field 'input' must be (12, 6) float32 for micro-batch 2 x device iterations 2 x "
       "accumulate 3 = 12 samples a call, got (11, 6) float32"},
      {{{"input", good["input"]}},
       "train: samples must have the field 'labels' (12,) int32, got input (12, 6) float32"},
      {{{"input", good["input"]}, {"labels", good["labels"].cast(f32)}},
       "the field 'labels' must be (12,) int32 for micro-batch 2 x device iterations 2 x "
       "accumulate "
       "3 = 12 samples a call, got (12,) float32"},
      {{good["input"]}, "train: samples must have the field 'labels'"},
  };
  for (const auto& [element, text] : cases) refused(text, [&, &e = element] { model(e); });
  EXPECT_EQ(model.updates(), 0);
  model(good);
  EXPECT_EQ(model.updates(), 2);
}

TEST(InferenceModel, ReadsTheTrainedWeightsInPlace) {
  for (const Strategy& strategy :
       {strategies()[0], strategies()[1], strategies()[2], Strategy(phased())}) {
    const bool phases = std::holds_alternative<PhasedExecution>(strategy);
    const Options options =
        on_two_devices({.strategy = strategy, .accumulate = 2, .learning_rate = 0.1});
    TrainingModel model = training_model(model_network(), options);
    Options apart = options;
    apart.accumulate = 1;
    apart.device_iterations = 5;
    InferenceModel test = inference_model(model, apart);
    EXPECT_EQ(test.call_size().samples(), 20);
    const data::Element batch = samples(20);
    const HostTensor before = test(batch)["logits"];
    ASSERT_EQ(before.shape(), Shape({20, kClasses}));
    model(samples(4));
    const HostTensor after = test(batch)["logits"];
    EXPECT_FALSE(after.same_bits(before));
    // One micro-batch at a time gives the same, by a model with weights from a file.
    const std::string file = testing::TempDir() + "model_test.safetensors";
    model.save(file);
    InferenceModel alone = inference_model(model_network(), on_two_devices({}));
    alone.load(file);
    for (int64_t k = 0; k < 5; ++k) {
      const data::Element four{
          {"input", HostTensor::of<float>({4, kFeatures}, f32, rows(batch["input"], 4 * k, 4))}};
      EXPECT_EQ(floats(alone(four)["logits"]), rows(after, 4 * k, 4)) << k << phases;
    }
  }
}

TEST(InferenceModel, OutputsAreThoseOfTraining) {
  const auto results = [](const std::optional<Output>& output, const Strategy& strategy) {
    const Options options = on_two_devices({.strategy = strategy, .device_iterations = 6});
    TrainingModel model = training_model(model_network(), on_two_devices({.strategy = strategy}));
    Options apart = options;
    apart.output = output;
    return inference_model(model, apart)(samples(24))["logits"];
  };
  for (const Strategy& strategy : {strategies()[0], strategies()[2], Strategy(phased())}) {
    const HostTensor all = results({}, strategy);
    ASSERT_EQ(all.shape(), Shape({24, kClasses}));
    EXPECT_EQ(floats(results(Output::final(), strategy)), rows(all, 20, 4));
    const HostTensor third = results(Output::every(3), strategy);
    ASSERT_EQ(third.shape(), Shape({8, kClasses}));
    EXPECT_EQ(rows(third, 0, 4), rows(all, 8, 4));
    EXPECT_EQ(rows(third, 4, 4), rows(all, 20, 4));
    EXPECT_EQ(results(Output::sum(), strategy).shape(), Shape({4, kClasses}));
  }
}

TEST(InferenceModel, MayBeMadeAfterTheTrainingBegan) {
  const auto weights = [](bool late) {
    TrainingModel model = training_model(model_network(), on_two_devices({.learning_rate = 0.1}),
                                         nn::Optimizer::adam());
    for (int64_t k = 0; k < 4; ++k) {
      if (late && k == 2) {
        InferenceModel test = inference_model(model, on_two_devices({}));
        test(samples(4));
      }
      model(samples(2, k));
    }
    return floats(model.weight("hidden.weight"));
  };
  EXPECT_EQ(weights(true), weights(false));
}

// One reads the weights in place; the others are made at any time, with replicas of their own.
TEST(InferenceModel, SeveralAreBesideATraining) {
  for (const Strategy& strategy : {strategies()[0], strategies()[2]}) {
    TrainingModel model =
        training_model(model_network(), on_two_devices({.strategy = strategy, .replicas = 2}));
    std::vector<InferenceModel> tests;
    tests.push_back(inference_model(model));
    tests.push_back(inference_model(model, on_two_devices({.replicas = 2})));
    tests.push_back(inference_model(model, on_two_devices({.device_iterations = 3})));
    const Session* const session = &model.session();
    model(samples(4));
    tests.push_back(inference_model(model, on_two_devices({.strategy = strategies()[2]})));
    tests.push_back(
        inference_model(model, on_two_devices({.device_iterations = 2, .replicas = 3})));
    const auto scores = [&] {
      std::vector<float> first;
      for (InferenceModel& test : tests) {
        const HostTensor logits = test(samples(test.call_size().samples()))["logits"];
        const std::vector<float> found = rows(logits, 0, 4);
        if (first.empty()) first = found;
        EXPECT_EQ(found, first);
      }
      return first;
    };
    const std::vector<float> once = scores();
    EXPECT_EQ(scores(), once);
    model(samples(4, 4));
    const std::vector<float> twice = scores();
    EXPECT_NE(twice, once);
    // Weights that do not come from training are read, too.
    const Training& programs = model.programs();
    const Tensor weight = programs.variables["out.weight"];
    HostTensor zeros(model.session().read(weight).spec());
    model.session().write(weight, zeros);
    EXPECT_NE(scores(), twice);
    EXPECT_EQ(&model.session(), session);
    EXPECT_EQ(&tests[0].session(), session);
    EXPECT_EQ(&tests[1].session(), session);
    EXPECT_NE(&tests[2].session(), session);
  }
}

TEST(InferenceModel, OfProgramsThatExistMayHaveOptions) {
  Ir ir;
  const Options options = on_two_devices({});
  const Training built = build_training(ir, model_network(), nn::Optimizer::sgd(), options);
  TrainingModel model = training_model(model_network(), options, ir, built);
  InferenceModel one = inference_model(model);
  InferenceModel three = inference_model(model, on_two_devices({.device_iterations = 3}));
  model(samples(2));
  const HostTensor first = one(samples(4))["logits"];
  EXPECT_EQ(rows(three(samples(12))["logits"], 0, 4), floats(first));
}

// The budgets are for the training and its inference models.
TEST(InferenceModel, IsRefusedWhereBothDoNotFit) {
  Options options{.session = {.device = cpu_device({.threads = 1})}};
  const int64_t alone = [&] {
    TrainingModel model = training_model(model_network(), options);
    return model.session().planned_bytes();
  }();
  const int64_t inference_bytes =
      inference_model(model_network(), options).session().planned_bytes();
  for (const int64_t more : {0L, inference_bytes - 1, inference_bytes, 2 * inference_bytes - 1}) {
    options.session.device.memory = alone + more;
    TrainingModel model = training_model(model_network(), options);
    model.compile();
    InferenceModel test = inference_model(model, options);
    try {
      test(samples(4));
      EXPECT_GE(more, inference_bytes);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kDoesNotFit);
      EXPECT_NE(std::string(e.what()).find("while the training model"), std::string::npos);
      EXPECT_LT(more, inference_bytes);
    }
    model(samples(2));
    if (more < inference_bytes) continue;
    // A second one does not fit until the first one is gone.
    InferenceModel second = inference_model(model, options);
    EXPECT_THROW(second.compile(), Error);
    test = inference_model(model);
    second.compile();
  }
}

TEST(InferenceModel, Refusals) {
  TrainingModel model = training_model(model_network(), on_two_devices({.replicas = 2}));
  refused("inference_model: accumulate must be 1",
          [&] { inference_model(model, on_two_devices({.accumulate = 2, .replicas = 2})); });
  refused("inference_model: accumulate must be 1",
          [&] { inference_model(model_network(), on_two_devices({.accumulate = 2})); });
  refused("inference: the period of the output must be a divisor of device_iterations 4, got 3",
          [&] {
            inference_model(training_model(model_network(), on_two_devices({})),
                            on_two_devices({.device_iterations = 4, .output = Output::every(3)}))
                .compile();
          });
}

TEST(Accuracy, ComparesTheLastLabels) {
  const HostTensor scores = HostTensor::of<float>({2, 3}, f32, {0, 2, 1, 5, 4, 3});
  EXPECT_EQ(accuracy(scores, HostTensor::of<int32_t>({2}, i32, {1, 0})), 100);
  EXPECT_EQ(accuracy(scores, HostTensor::of<int32_t>({4}, i32, {0, 2, 1, 1})), 50);
  refused("accuracy: labels must be int32, one for each of 2 predictions",
          [&] { accuracy(scores, HostTensor::of<int32_t>({1}, i32, {1})); });
  refused("accuracy: predictions must be (samples, classes) float32",
          [&] { accuracy(HostTensor::scalar(1), HostTensor::of<int32_t>({1}, i32, {1})); });
}

}  // namespace
}  // namespace sluice::train
