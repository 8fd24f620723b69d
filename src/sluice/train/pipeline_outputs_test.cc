// The outputs that pipelines from functions write: of each micro-batch, as sums, or not at all.
#include <cmath>
#include <map>

#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/ops/ops.h"
#include "sluice/session/session.h"
#include "sluice/train/model.h"
#include "sluice/train/pipeline.h"
#include "sluice/train/step_arrays.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

using namespace test;

// Four stages. The loss is the mean of x plus 0 times a weight, so that it stays that mean. `value`
// is `factor` times the loss in `dtype`.
std::vector<PipelineStage> four_stages(double factor, DType dtype = f32) {
  return {[](nn::Builder& b, const StageInputs& in) {
            return in["x"] + b.add_variable_input("w", nn::zeros(), {2}) * 0.0;
          },
          [](nn::Builder&, const StageInputs& in) { return in[0] * 1.0; },
          [](nn::Builder&, const StageInputs& in) { return in[0] + 0.0; },
          [factor, dtype](nn::Builder&, const StageInputs& in) -> Tensors {
            const Tensor loss = ops::mean(in[0]);
            return {loss, ops::cast(loss * factor, dtype)};
          }};
}

PipelineOptions four_stage_options(int64_t accumulate) {
  return {.accumulate = accumulate,
          .fields = {{.name = "x", .spec = f32_spec({2})}},
          .outputs = {"loss", "value"},
          .optimizer = nn::Optimizer::sgd(),
          .accumulation_reduction = Accumulation::kSum};
}

struct StoredOutput {
  Shape shape;
  std::vector<double> values;
  bool operator==(const StoredOutput&) const = default;
};

// The outputs of a run by name. `x` is the value of micro-batch m of update u.
std::map<std::string, StoredOutput> outputs_of(
    const std::vector<PipelineStage>& stages, const PipelineOptions& options, int replicas = 1,
    const std::function<float(int64_t)>& x = [](int64_t) { return 1.0f; }) {
  Ir ir(replicas);
  const Training t = pipeline(ir, stages, options);
  Session session(ir,
                  {.device = cpu_device({.threads = 1}),
                   .more_devices = std::vector(static_cast<size_t>(t.devices) - 1, cpu_device())});
  EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
  const std::string program = options.optimizer ? "train" : "eval";
  std::vector<D2hStream> streams = t.losses;
  for (const auto* list : {&t.predictions, &t.eval_predictions}) {
    if ((list == &t.eval_predictions) == (program == "eval"))
      streams.insert(streams.end(), list->begin(), list->end());
  }
  const H2dStream field = program == "train" ? t.fields[0] : t.eval_fields[0];
  const int64_t entries = options.accumulate * options.device_iterations;
  HostTensor samples({entries_shape({2}, entries, replicas), f32, {}});
  for (int64_t i = 0; i < samples.spec().shape.elements(); ++i)
    samples.as<float>()[static_cast<size_t>(i)] = x(i / 2 / replicas);
  const HostTensors out = session.run({{field, samples}}, program);
  std::map<std::string, StoredOutput> result;
  for (const D2hStream& s : streams) {
    const HostTensor array = out[s];
    EXPECT_EQ(array.dtype(), s.spec.dtype);
    result.emplace(s.name, StoredOutput{array.spec().shape, array.to_doubles()});
  }
  return result;
}

TEST(PipelineOutputs, LeaveOutAllButTheLoss) {
  PipelineOptions options = four_stage_options(8);
  options.outfeed_loss = true;
  const auto out = outputs_of(four_stages(4), options);
  EXPECT_EQ(out, (std::map<std::string, StoredOutput>{{"loss", {{8}, std::vector(8, 1.0)}}}));
}

TEST(PipelineOutputs, LeaveOutThoseOfTheMask) {
  PipelineOptions options = four_stage_options(8);
  options.outfeed_mask = {"loss"};
  const auto out = outputs_of(four_stages(4), options);
  EXPECT_EQ(out, (std::map<std::string, StoredOutput>{{"value", {{8}, std::vector(8, 4.0)}}}));
}

TEST(PipelineOutputs, AreSumsForEveryReductionOfGradients) {
  for (const Accumulation accumulation : kAccumulations) {
    for (const Schedule schedule : kSchedules) {
      PipelineOptions options = four_stage_options(8);
      options.schedule = schedule;
      options.accumulation_reduction = accumulation;
      options.accumulate_outputs = OutputSums{.outputs = {"loss"}};
      const auto one = outputs_of(four_stages(4), options);
      EXPECT_EQ(one.at("loss"), (StoredOutput{{}, {8.0}}));
      EXPECT_EQ(one.at("value"), (StoredOutput{{8}, std::vector(8, 4.0)}));
      options.accumulate_outputs = OutputSums{};
      const auto all = outputs_of(four_stages(2), options);
      EXPECT_EQ(all.at("loss"), (StoredOutput{{}, {8.0}}));
      EXPECT_EQ(all.at("value"), (StoredOutput{{}, {16.0}}));
    }
  }
}

TEST(PipelineOutputs, HaveASumForEachUpdateAndReplica) {
  PipelineOptions options = four_stage_options(3);
  options.device_iterations = 2;
  options.accumulate_outputs = OutputSums{};
  options.outfeed_mask = {"value"};
  const auto out = outputs_of(four_stages(2), options, 2,
                              [](int64_t entry) { return static_cast<float>(entry); });
  EXPECT_EQ(out, (std::map<std::string, StoredOutput>{{"loss", {{2, 2}, {3, 3, 12, 12}}}}));
  options.accumulate = 1;
  const auto single = outputs_of(four_stages(2), options, 1,
                                 [](int64_t entry) { return static_cast<float>(entry); });
  EXPECT_EQ(single.at("loss"), (StoredOutput{{2}, {0, 1}}));
}

// Four times 60000 and four times 2. The largest float16 is 65504.
TEST(PipelineOutputs, OfFloat16HaveSumsInFloat32) {
  const auto x = [](int64_t m) { return m % 2 == 0 ? 60000.0f : 2.0f; };
  PipelineOptions options = four_stage_options(8);
  options.outfeed_mask = {"loss"};
  options.accumulate_outputs = OutputSums{};
  EXPECT_TRUE(std::isinf(outputs_of(four_stages(1, f16), options, 1, x).at("value").values[0]));
  for (const AccumulatorDtype& dtype :
       {AccumulatorDtype(f32), AccumulatorDtype([](const std::string&name, const TensorSpec&spec) {
          return name == "value" && spec.dtype == f16 ? f32 : spec.dtype;
        })}) {
    options.accumulate_outputs = OutputSums{.dtype = dtype};
    EXPECT_EQ(outputs_of(four_stages(1, f16), options, 1, x).at("value"),
              (StoredOutput{{}, {240008}}));
  }
  // A value is rounded before it is added: float16 has even numbers only above 2048.
  const auto odd = [](int64_t) { return 2049.0f; };
  options.accumulate_outputs = OutputSums{.dtype = f16};
  options.accumulate = 2;
  EXPECT_EQ(outputs_of(four_stages(1), options, 1, odd).at("value"), (StoredOutput{{}, {4096}}));
}

TEST(PipelineOutputs, OfIntegersAndOfInferenceHaveSumsToo) {
  std::vector<PipelineStage> stages = four_stages(3);
  stages[3] = [](nn::Builder&, const StageInputs& in) -> Tensors {
    return {ops::cast(in[0], i32), in[0]};
  };
  PipelineOptions options = four_stage_options(5);
  options.optimizer.reset();
  options.accumulation_reduction = Accumulation::kRunningMean;
  options.outputs = {"count", "value"};
  options.accumulate_outputs = OutputSums{.outputs = {"count"}};
  const auto out =
      outputs_of(stages, options, 1, [](int64_t entry) { return static_cast<float>(entry); });
  EXPECT_EQ(out.at("count"), (StoredOutput{{2}, {10, 10}}));
  EXPECT_EQ(out.at("value"), (StoredOutput{{5, 2}, {0, 0, 1, 1, 2, 2, 3, 3, 4, 4}}));
}

TEST(PipelineOutputs, AreRefusedWithoutTheirOutputOrOptimizer) {
  const auto with = [](auto&& change) {
    return [change] {
      PipelineOptions options = four_stage_options(2);
      change(options);
      Ir ir;
      pipeline(ir, four_stages(1), options);
    };
  };
  const auto infers = [](PipelineOptions& o) {
    o.optimizer.reset();
    o.accumulation_reduction = Accumulation::kRunningMean;
  };
  expect_refused({
      {"an unknown name in the mask", with([](PipelineOptions& o) { o.outfeed_mask = {"logits"}; }),
       "outfeed_mask must have names of outputs (loss, value), got 'logits'"},
      {"a mask of everything", with([](PipelineOptions& o) {
         o.outfeed_mask = {"loss", "value"};
       }),
       "outfeed_mask must leave an output to write, got all of loss, value"},
      {"a mask and the loss", with([](PipelineOptions& o) {
         o.outfeed_loss = true;
         o.outfeed_mask = {"value"};
       }),
       "outfeed_loss must be given without outfeed_mask, got both"},
      {"a mask without an optimizer", with([=](PipelineOptions& o) {
         infers(o);
         o.outfeed_mask = {"value"};
       }),
       "outfeed_loss and outfeed_mask require an optimizer"},
      {"the loss without an optimizer", with([=](PipelineOptions& o) {
         infers(o);
         o.outfeed_loss = true;
       }),
       "outfeed_loss and outfeed_mask require an optimizer"},
      {"an unknown sum",
       with([](PipelineOptions& o) { o.accumulate_outputs = OutputSums{.outputs = {"x"}}; }),
       "accumulate_outputs must have names of outputs that are written, got 'x'"},
      {"a sum that is not written", with([](PipelineOptions& o) {
         o.outfeed_loss = true;
         o.accumulate_outputs = OutputSums{.outputs = {"value"}};
       }),
       "names of outputs that are written, got 'value'"},
      {"a sum in integers",
       with([](PipelineOptions& o) { o.accumulate_outputs = OutputSums{.dtype = i32}; }),
       "accumulate_outputs: must be f32, f16 or bf16 for 'loss', got int32"},
      {"reductions without an optimizer", with([=](PipelineOptions& o) {
         infers(o);
         o.accumulator_dtype = f32;
       }),
       "inference: accumulator_dtype requires an optimizer"},
  });
}

}  // namespace
}  // namespace sluice::train
