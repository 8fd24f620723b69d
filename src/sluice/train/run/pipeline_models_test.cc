// Models of pipelines from functions: fit(), loaders, evaluate(), and a concurrent last stage.
#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/losses.h"
#include "sluice/train/cut/test_networks.h"
#include "sluice/train/fit.h"
#include "sluice/train/model.h"
#include "sluice/train/pipeline.h"
#include "sluice/train/pipeline/schedule.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

using test::kClasses;
using test::kFeatures;

Tensor hidden_stage(nn::Builder& b, const StageInputs& in) {
  return ops::gelu(linear(b, "hidden", in["input"], 8));
}
Tensor middle_stage(nn::Builder& b, const StageInputs& in) {
  return ops::gelu(linear(b, "middle", in[0], 8));
}
Tensors scores_stage(nn::Builder& b, const StageInputs& in) {
  const Tensor logits = linear(b, "out", in[0], kClasses);
  return {ops::cross_entropy(logits, in["labels"]), logits};
}
Tensor aside_stage(nn::Builder&, const StageInputs& in) { return ops::tanh(in[0]); }

PipelineOptions model_options(int64_t accumulate) {
  return {.accumulate = accumulate,
          .fields = {{.name = "input", .spec = f32_spec({test::kMicroBatch, kFeatures})},
                     {.name = "labels", .spec = i32_spec({test::kMicroBatch})}},
          .outputs = {"loss", "logits"},
          .optimizer = nn::Optimizer::adam(),
          .learning_rate = 0.05,
          .session = {.device = cpu_device({.threads = 1})}};
}

// The network of the same functions.
Network model_network_of_functions() {
  return {Written([](nn::Builder& b, const Inputs& in) -> Results {
            std::optional<nn::Block> block(std::in_place, b, "stage0");
            Tensor x = ops::gelu(linear(b, "hidden", in["input"], 8));
            block.emplace(b, "stage1");
            x = ops::gelu(linear(b, "middle", x, 8));
            block.emplace(b, "stage2");
            x = linear(b, "out", x, kClasses);
            if (in.wants_losses())
              return {.losses = {{.value = ops::cross_entropy(x, in["labels"])}},
                      .predictions = {{"logits", x}}};
            return {.predictions = {{"logits", x}}};
          }),
          model_options(1).fields};
}

TEST(PipelineModels, TrainAndEvaluateAsTheNetworkDoes) {
  PipelineOptions options = model_options(4);
  options.device_iterations = 2;
  TrainingModel model = training_model({hidden_stage, middle_stage, scores_stage}, options);
  InferenceModel test = inference_model(model);
  DataLoader loader(model.options(), test::dataset(64), {.batch_size = test::kMicroBatch});
  DataLoader tests(test.options(), test::dataset(10), {.batch_size = test::kMicroBatch});
  FitOptions run{.epochs = 3, .validation_model = &test, .validation_data = &tests};
  run.schedule = LearningRateSchedule{.decay = Decay::kCosine, .peak = 0.05, .steps = 24};
  const FitResult result = fit(model, loader, run);
  EXPECT_EQ(result.calls, 12);
  EXPECT_EQ(result.updates, 24);
  ASSERT_EQ(result.validations.size(), 3u);

  TrainingModel whole = training_model(model_network_of_functions(),
                                       {.accumulate = 4,
                                        .device_iterations = 2,
                                        .output = Output::all(),
                                        .session = options.session},
                                       nn::Optimizer::adam());
  InferenceModel whole_test = inference_model(whole);
  DataLoader whole_tests(whole_test.options(), test::dataset(10), {.batch_size = 2});
  run.validation_model = &whole_test;
  run.validation_data = &whole_tests;
  DataLoader again(whole.options(), test::dataset(64), {.batch_size = test::kMicroBatch});
  const FitResult expected = fit(whole, again, run);
  EXPECT_EQ(result.losses, expected.losses);
  EXPECT_EQ(result.accuracy, expected.accuracy);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(result.validations[i]["accuracy"], expected.validations[i]["accuracy"]);
    ASSERT_TRUE(result.validations[i]["loss"].has_value());
    EXPECT_EQ(result.validations[i]["loss"], expected.validations[i]["loss"]);
  }
  EXPECT_TRUE(model.weight("out.weight").same_bits(whole.weight("out.weight")));
}

TEST(PipelineModels, InferAlone) {
  PipelineOptions options = model_options(3);
  options.optimizer = {};
  options.learning_rate = {};
  options.device_iterations = 2;
  InferenceModel model = inference_model({hidden_stage, middle_stage, scores_stage}, options);
  EXPECT_EQ(model.call_size().samples(), 12);
  const data::Element found = model(test::samples(12));
  EXPECT_EQ(found["logits"].shape(), Shape({12, kClasses}));
}

TEST(PipelineModels, Refusals) {
  PipelineOptions without = model_options(1);
  without.optimizer = {};
  without.learning_rate = {};
  PipelineOptions unread = model_options(1);
  unread.fields.push_back({.name = "mask", .spec = f32_spec({2})});
  const std::vector<PipelineStage> stages{hidden_stage, scores_stage};
  expect_refused({
      {"no optimizer", [&] { training_model(stages, without); }, "must have an optimizer"},
      {"an optimizer", [&] { inference_model(stages, model_options(1)); },
       "must be without an optimizer"},
      {"a field", [&] { training_model(stages, unread); }, "'mask' is not"},
  });
}

// The last step of the schedule has two stages, of which one makes the loss.
TEST(PipelineModels, EndWithConcurrentStages) {
  const auto both = [](nn::Builder& b, const StageInputs& in) {
    Tensors outputs = scores_stage(b, in);
    outputs.push_back(aside_stage(b, in));
    return outputs;
  };
  const auto run = [](const std::vector<PipelineStage>& stages, std::vector<StageDevices> devices,
                      Schedule schedule, int64_t accumulate) {
    PipelineOptions options = model_options(accumulate);
    options.outputs = {"loss", "logits", "aside"};
    options.device_mapping = std::move(devices);
    options.schedule = schedule;
    TrainingModel model = training_model(stages, options);
    InferenceModel test = inference_model(model);
    std::vector<HostTensor> found;
    for (int64_t k = 0; k < 2; ++k) {
      for (HostTensor& t : model(test::samples(2 * accumulate, k)).arrays)
        found.push_back(std::move(t));
    }
    for (HostTensor& t : test(test::samples(2)).arrays) found.push_back(std::move(t));
    found.push_back(model.weight("hidden.weight"));
    return found;
  };
  for (const Schedule schedule : test::kSchedules) {
    for (const int64_t accumulate : {1, 5}) {
      const auto expected =
          run({hidden_stage, middle_stage, both}, {0, 0, 0}, schedule, accumulate);
      for (const std::vector<StageDevices>& devices :
           std::vector<std::vector<StageDevices>>{{0, 1, {2, 3}}, {0, 1, {0, 1}}}) {
        const auto found = run({hidden_stage, middle_stage, {scores_stage, aside_stage}}, devices,
                               schedule, accumulate);
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(found[i].same_bits(expected[i])) << i << to_string(schedule) << accumulate;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::train
