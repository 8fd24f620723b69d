// Pipelines from functions: their numbers, their bits and their refusals.
#include "sluice/train/pipeline.h"

#include "sluice/base/test_refusals.h"
#include "sluice/data/samples.h"
#include "sluice/exe/executable.h"
#include "sluice/ir/builtin.h"
#include "sluice/train/cut/test_networks.h"
#include "sluice/train/model.h"
#include "sluice/train/pipeline/schedule.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

HostTensor floats(Shape shape, const std::vector<float>& values) {
  return HostTensor::of(std::move(shape), f32, values);
}

std::vector<float> values(const HostTensor& t) {
  const auto all = t.as<float>();
  return {all.begin(), all.end()};
}

Session session_of(const Ir& ir, const Training& t) {
  return Session(ir, {.device = cpu_device({.threads = 1}),
                      .more_devices = std::vector(static_cast<size_t>(t.devices) - 1, cpu_device()),
                      .remote = "host"});
}

// The layers of a small network: each function below is a stage, and all of them are a network.
Tensor first_layer(nn::Builder& b, const Tensor& rate, const Tensor& x) {
  return ops::gelu(linear(b, "a", x)) * rate;
}
Tensor second_layer(nn::Builder& b, const Tensor& x, const Inputs&) {
  return drop(b, "drop", ops::relu(linear(b, "b", x)));
}
Tensor last_layer(nn::Builder& b, const Tensor& x, const Tensor& first, const Inputs& in) {
  return linear(b, "c", (x + first) * in["scale"], 3);
}
Tensor loss_of(const Tensor& logits, const Inputs& in) {
  return ops::cross_entropy(logits, in["labels"]);
}

std::vector<Field> inputs() { return {{.name = "rate", .spec = {{}, f32, {}}}}; }
std::vector<Field> batch_fields() {
  return {{.name = "x", .spec = f32_spec({kBatch, kWidth})},
          {.name = "labels", .spec = i32_spec({kBatch})},
          {.name = "scale", .spec = f32_spec({kBatch, 1})}};
}

// The stages read `x` and `rate` as arguments, and other fields and the result of stage 0 by name
// and by capture.
std::vector<PipelineStage> stages() {
  const auto first = std::make_shared<Tensor>();
  return {[first](nn::Builder& b, const StageInputs& in) {
            return *first = first_layer(b, in[0], in[1]);
          },
          [](nn::Builder& b, const StageInputs& in) { return second_layer(b, in[0], in); },
          [first](nn::Builder& b, const StageInputs& in) -> Tensors {
            const Tensor logits = last_layer(b, in[0], *first, in);
            return {loss_of(logits, in), logits};
          }};
}

PipelineOptions three_stage_options(int64_t accumulate) {
  return {.accumulate = accumulate,
          .inputs = inputs(),
          .fields = batch_fields(),
          .outputs = {"loss", "logits"},
          .optimizer = nn::Optimizer::adam(),
          .learning_rate = StreamedRate{"rate"}};
}

// The network of the same layers.
Network whole() {
  std::vector<Field> fields = inputs();
  fields[0].once = true;
  for (const Field& f : batch_fields()) fields.push_back(f);
  return {Written([](nn::Builder& b, const Inputs& in) {
            const nn::Block block(b, "all");
            const Tensor first = first_layer(b, in["rate"], in["x"]);
            const Tensor logits = last_layer(b, second_layer(b, first, in), first, in);
            Results results{.predictions = {{"logits", logits}}};
            if (in.mode() == nn::RunMode::kTrain)
              results.losses.push_back({.value = loss_of(logits, in)});
            return results;
          }),
          std::move(fields)};
}

// Digests of the losses, logits, weights and state of 4 updates, with rates 0.02 and 0.01.
std::string digest_of(const Ir& ir, const Training& t) {
  Session session = session_of(ir, t);
  EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
  StepArrays arrays(t);
  Digest losses, logits, variables;
  for (int64_t update = 0; update < 4; update += t.device_iterations) {
    for (HostTensor& field : arrays.fields) {
      float next = static_cast<float>(update * field.spec().shape.elements() / t.device_iterations);
      if (field.dtype() == f32)
        for (float& x : field.as<float>()) x = std::sin(next += 1);
      if (field.dtype() == i32)
        for (int32_t& x : field.as<int32_t>()) x = static_cast<int32_t>(next += 1) % 3;
    }
    arrays.seed(3, update);
    arrays.set_learning_rate(update < 2 ? 0.02 : 0.01);
    const HostTensors out = session.run(arrays.inputs(t), "train");
    losses.add(out[t.losses[0]].bytes());
    logits.add(out[t.predictions[0]].bytes());
  }
  session.each_variable([&](const std::string& path, const HostTensor& value) {
    variables.add(std::as_bytes(std::span(path)));
    variables.add(value.bytes());
  });
  return losses.hex() + logits.hex() + variables.hex();
}

std::string digest_of(const std::vector<PipelineStage>& stages, const PipelineOptions& options,
                      int replicas = 1) {
  Ir ir(replicas);
  const Training t = pipeline(ir, stages, options);
  return digest_of(ir, t);
}

std::string resident_digest(int64_t accumulate) {
  Ir ir;
  const Training t =
      build_training(ir, whole(), nn::Optimizer::adam(),
                     {.accumulate = accumulate, .learning_rate = StreamedRate{"rate"}});
  return digest_of(ir, t);
}

// Alternate mappings, so that any two values of two dimensions are combined.
TEST(PipelineFunctions, HaveTheBitsOfTheNetworkOnOneDevice) {
  const std::vector<std::vector<StageDevices>> mappings{{}, {0, 0, 0}, {2, 0, 1}, {0, 1, 0}};
  size_t first = 0;
  for (const int64_t accumulate : {1, 2, 5, 9}) {
    const std::string expected = resident_digest(accumulate);
    PipelineOptions options = three_stage_options(accumulate);
    for (const Schedule schedule : test::kSchedules) {
      options.schedule = schedule;
      for (size_t m = first++ % 2; m < mappings.size(); m += 2) {
        options.device_mapping = mappings[m];
        EXPECT_EQ(digest_of(stages(), options), expected)
            << to_string(schedule) << ", " << accumulate << " micro-batches";
      }
    }
  }
}

TEST(PipelineFunctions, HaveTheBitsOfOneDeviceWithEachLocation) {
  const std::string expected = resident_digest(3);
  int way = 0;
  for (const TensorLocations& where : locations()) {
    PipelineOptions options = three_stage_options(3);
    options.locations = where;
    options.schedule = test::kSchedules[way++ % 3];
    options.recompute = way % 2 == 0 ? Recompute::every_block() : Recompute{.blocks = {"stage1"}};
    EXPECT_EQ(digest_of(stages(), options), expected) << "way " << way;
  }
}

// The program of k updates has the seeds of one step after the other, so nothing may draw.
std::vector<PipelineStage> without_draws() {
  std::vector<PipelineStage> all = stages();
  all[1] = [](nn::Builder& b, const StageInputs& in) {
    const Tensor running = b.add_running_input("mean", nn::zeros(), {kWidth});
    const Tensor y = ops::relu(linear(b, "b", in[0]));
    if (b.mode() == nn::RunMode::kEvaluate) return y - running;
    b.update_running(running, ops::mean(y, {.axes = {0}}));
    return y;
  };
  return all;
}

// Each schedule has every location on one replica and on two, and on two each location is in shards
// and whole.
TEST(PipelineFunctions, RepeatTheWholePipelineInARun) {
  size_t draw = 0;
  for (const Schedule schedule : test::kSchedules) {
    PipelineOptions options = three_stage_options(5);
    options.schedule = schedule;
    options.max_grad_norm = 0.05;
    for (const int replicas : {1, 2}) {
      const auto variables = [&](int64_t repeat, const TensorLocations& where) {
        options.device_iterations = repeat;
        options.locations = where;
        const std::string digest = digest_of(without_draws(), options, replicas);
        return digest.substr(2 * digest.size() / 3);
      };
      const std::string expected = variables(1, {});
      for (TensorLocations where : locations()) {
        if (draw++ % 2 == 0) where.min_elements_sharded = 4;
        EXPECT_EQ(variables(2, where), expected) << to_string(schedule);
      }
    }
    ++draw;
  }
}

size_t count_steps(const std::vector<PipelineStage>& stages, const PipelineOptions& options) {
  Ir ir;
  const Training t = pipeline(ir, stages, options);
  const Session session = session_of(ir, t);
  size_t steps = 0;
  for (const exe::Function& f : session.executable().functions) steps += f.steps.size();
  return steps;
}

TEST(PipelineFunctions, DoNotGrowWithMicroBatchesAndRepeats) {
  PipelineOptions options = three_stage_options(10);
  options.device_iterations = 2;
  const size_t steps = count_steps(stages(), options);
  options.accumulate = 100;
  options.device_iterations = 30;
  EXPECT_EQ(count_steps(stages(), options), steps);
}

// y = x * x + x * x. Stage 1 passes its arguments on.
std::vector<PipelineStage> squares() {
  return {[](nn::Builder&, const StageInputs& in) -> Tensors {
            return {in[0] * in[0], in[0]};
          },
          [](nn::Builder&, const StageInputs& in) { return in.arguments(); },
          [](nn::Builder&, const StageInputs& in) { return in[0] + in[1] * in[1]; }};
}

TEST(PipelineFunctions, EvaluateWithoutVariables) {
  for (const Schedule schedule : test::kSchedules) {
    for (const std::vector<StageDevices>& mapping :
         std::vector<std::vector<StageDevices>>{{}, {0, 0, 0}, {1, 0, 1}}) {
      Ir ir;
      const Training t = pipeline(ir, squares(),
                                  {.accumulate = 6,
                                   .fields = {{.name = "x", .spec = f32_spec({1})}},
                                   .outputs = {"y"},
                                   .device_mapping = mapping,
                                   .schedule = schedule});
      Session session = session_of(ir, t);
      const HostTensors out =
          session.run({{t.eval_fields[0], floats({6, 1}, {0, 1, 2, 3, 4, 0})}}, "eval");
      EXPECT_EQ(values(out[t.eval_predictions[0]]), (std::vector<float>{0, 2, 8, 18, 32, 0}));
    }
  }
}

TEST(PipelineFunctions, EvaluateInMicroBatchesAndStagesLessOneIterations) {
  const auto add = [](nn::Builder&, const StageInputs& in) {
    return in[in.size() - 1] + in["one"];
  };
  constexpr int64_t kRuns = 100, kStages = 4;
  Ir ir;
  const Training t = pipeline(ir, {add, add, add, add},
                              {.accumulate = kRuns,
                               .inputs = {{.name = "one", .spec = f32_spec({1})}},
                               .fields = {{.name = "x", .spec = f32_spec({1})}},
                               .outputs = {"y"}});
  // Stage 0 begins each iteration of the ramp-up, and the last stage each one of the ramp-down.
  const Graph& eval = ir.entry_graph("eval");
  int64_t before = 0, trips = 0, after = 0;
  for (const Op& op : eval.ops()) {
    if (op.callees.empty()) continue;
    const std::string callee = ir.graph(op.callees[0]).name();
    if (op.def->type == std::string("Loop")) {
      trips += from_attrs<builtin::LoopOptions>(op.attrs).trips;
    } else if (trips == 0) {
      before += callee.starts_with("stage0");
    } else {
      after += callee.starts_with("stage3");
    }
  }
  EXPECT_EQ(before, kStages - 1);
  EXPECT_EQ(after, kStages - 1);
  EXPECT_EQ(before + trips + after, 103);
  Session session = session_of(ir, t);
  std::vector<float> x(kRuns), y(kRuns);
  for (size_t i = 0; i < x.size(); ++i) y[i] = (x[i] = static_cast<float>(i)) + 4 * 2;
  const HostTensors out = session.run(
      {{t.inputs[0], floats({1}, {2})}, {t.eval_fields[0], floats({kRuns, 1}, x)}}, "eval");
  EXPECT_EQ(values(out[t.eval_predictions[0]]), y);
}

// loss = mean(w * x), so the gradient of w is the mean of x.
std::vector<PipelineStage> slope() {
  return {[](nn::Builder& b, const StageInputs& in) {
            return b.add_variable_input("w", nn::constant(1), {1}) * in["x"];
          },
          [](nn::Builder&, const StageInputs& in) { return ops::mean(in[0]); }};
}

TEST(PipelineFunctions, TakeTheLearningRateOnceARun) {
  Ir ir;
  const Training t = pipeline(ir, slope(),
                              {.accumulate = 8,
                               .inputs = inputs(),
                               .fields = {{.name = "x", .spec = f32_spec({1})}},
                               .optimizer = nn::Optimizer::sgd(),
                               .learning_rate = StreamedRate{"rate"}});
  Session session = session_of(ir, t);
  const HostTensor ones = floats({8, 1}, std::vector<float>(8, 1));
  const auto run = [&](float rate) {
    const HostTensors out =
        session.run({{*t.learning_rate, floats({}, {rate})}, {t.fields[0], ones}}, "train");
    return values(out[t.losses[0]]);
  };
  EXPECT_EQ(run(0.1f), std::vector<float>(8, 1));
  EXPECT_EQ(run(0.01f), std::vector<float>(8, 1 - 0.1f));
  EXPECT_EQ(run(0), std::vector<float>(8, 1 - 0.1f - 0.01f));
  const HostTensors loss = session.run({{t.eval_fields[0], floats({1}, {2})}}, "eval");
  EXPECT_EQ(values(loss[t.eval_predictions[0]]), std::vector<float>{2 * (1 - 0.1f - 0.01f)});
}

// Inference of 5 micro-batches, and the program "eval" of a training pipeline, one at a time.
TEST(PipelineFunctions, EvaluateTrainedWeights) {
  constexpr int64_t kRuns = 5, kElements = kBatch * kWidth;
  Ir training_ir, ir;
  const Training trained = pipeline(training_ir, stages(), three_stage_options(2));
  Session training = session_of(training_ir, trained);
  StepArrays arrays(trained);
  for (HostTensor& field : arrays.fields) {
    if (field.dtype() == f32)
      for (float& x : field.as<float>()) x = 0.5f;
  }
  arrays.set_learning_rate(0.1);
  training.run(arrays.inputs(trained), "train");

  PipelineOptions options = three_stage_options(kRuns);
  options.optimizer.reset();
  options.learning_rate = PipelineOptions().learning_rate;
  const Training t = pipeline(ir, stages(), options);
  Session session = session_of(ir, t);
  EXPECT_GE(t.variables.keys_flat().size(), 6u);
  t.variables.for_each([&](const std::string& key, const Tensor& weight) {
    session.write(weight, training.read(trained.variables[key]));
  });
  std::vector<float> x(kRuns * kElements);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i));
  const HostTensor rate = floats({}, {1.5f});
  const HostTensor labels({{kRuns, kBatch}, i32});
  const HostTensor scale = floats({kRuns, kBatch, 1}, std::vector<float>(kRuns * kBatch, 2));
  const HostTensors all = session.run({{t.inputs[0], rate},
                                       {t.eval_fields[0], floats({kRuns, kBatch, kWidth}, x)},
                                       {t.eval_fields[1], labels},
                                       {t.eval_fields[2], scale}},
                                      "eval");
  std::vector<float> losses, logits;
  for (int64_t m = 0; m < kRuns; ++m) {
    const auto first = x.begin() + m * kElements;
    const HostTensors one = training.run(
        {{trained.eval_fields[0], floats({kBatch, kWidth}, {first, first + kElements})},
         {trained.eval_fields[1], HostTensor({{kBatch}, i32})},
         {trained.eval_fields[2], floats({kBatch, 1}, std::vector<float>(kBatch, 2))},
         {trained.eval_fields[3], rate}},
        "eval");
    for (const float l : values(one[trained.eval_predictions[0]])) losses.push_back(l);
    for (const float l : values(one[trained.eval_predictions[1]])) logits.push_back(l);
  }
  EXPECT_EQ(values(all[t.eval_predictions[0]]), losses);
  EXPECT_EQ(values(all[t.eval_predictions[1]]), logits);
  EXPECT_NE(losses[0], losses[1]);
}

// Two layers side by side, and one that reads both.
std::vector<PipelineStage> side_by_side(bool together) {
  const auto left = [](nn::Builder& b, const StageInputs& in) {
    return ops::gelu(linear(b, "left", in[0]));
  };
  const auto right = [](nn::Builder& b, const StageInputs& in) -> Tensors {
    const Tensor y = linear(b, "right", in[0]) * in["scale"];
    return {y, ops::relu(y)};
  };
  const PipelineStage first = [](nn::Builder& b, const StageInputs& in) -> Tensors {
    return {ops::gelu(linear(b, "in", in["x"]))};
  };
  const PipelineStage last = [](nn::Builder& b, const StageInputs& in) -> Tensors {
    const Tensor logits = linear(b, "out", in[0] * in[1] + in[2], 3);
    return {loss_of(logits, in), logits};
  };
  if (together) return {first, {left, right}, last};
  const auto both = [left, right](nn::Builder& b, const StageInputs& in) {
    Tensors result = StageFunction(left)(b, in);
    for (const Tensor& t : right(b, in)) result.push_back(t);
    return result;
  };
  return {first, both, last};
}

// Alternate mappings, so that any two values of two dimensions are combined.
TEST(PipelineFunctions, RunConcurrentStagesInOneStep) {
  const std::vector<std::vector<StageDevices>> mappings{
      {0, {1, 2}, 2}, {0, {0, 1}, 1}, {1, {2, 0}, 1}, {0, {1, 2}, 3}};
  size_t first = 0;
  for (const Schedule schedule : test::kSchedules) {
    for (const int64_t accumulate : {1, 6, 18}) {
      PipelineOptions options = three_stage_options(accumulate);
      options.schedule = schedule;
      options.device_mapping = {0, 0, 0};
      const std::string expected = digest_of(side_by_side(false), options);
      for (size_t m = first++ % 2; m < mappings.size(); m += 2) {
        options.device_mapping = mappings[m];
        EXPECT_EQ(digest_of(side_by_side(true), options), expected)
            << to_string(schedule) << ", " << accumulate << " micro-batches";
      }
    }
  }
}

TEST(PipelineFunctions, ReadVariablesOfEarlierStages) {
  const auto tied = std::make_shared<Tensor>();
  const std::vector<PipelineStage> all{
      [tied](nn::Builder& b, const StageInputs& in) {
        *tied = b.add_variable_input("tied", nn::normal(0, 0.5), {kWidth, kWidth});
        return ops::gelu(ops::matmul(in["x"], *tied));
      },
      [](nn::Builder& b, const StageInputs& in) { return linear(b, "middle", in[0]); },
      [tied](nn::Builder& b, const StageInputs& in) -> Tensors {
        const Tensor logits = linear(b, "out", ops::matmul(in[0], *tied) * in["scale"], 3);
        return {loss_of(logits, in), logits};
      }};
  PipelineOptions options = three_stage_options(7);
  options.device_mapping = {0, 0, 0};
  const std::string expected = digest_of(all, options);
  for (const std::vector<StageDevices>& mapping :
       std::vector<std::vector<StageDevices>>{{0, 1, 0}, {0, 1, 2}}) {
    options.device_mapping = mapping;
    EXPECT_EQ(digest_of(all, options), expected);
  }
}

// Returns an action that makes a pipeline of changed options.
template <typename Change>
std::function<void()> with(std::vector<PipelineStage> stages, Change change) {
  PipelineOptions options = three_stage_options(2);
  change(options);
  return [stages = std::move(stages), options] {
    Ir ir;
    pipeline(ir, stages, options);
  };
}
void as_is(PipelineOptions&) {}

static_assert(!std::is_constructible_v<StageFunction, PipelineStage>, "Lists must not nest.");

TEST(PipelineFunctions, AreRefusedWithWrongNumbers) {
  const auto on = [](std::vector<StageDevices> mapping) {
    return [mapping](PipelineOptions& o) { o.device_mapping = mapping; };
  };
  expect_refused({
      {"one stage", with({stages()[0]}, as_is),
       "Pipeline requires at least two computational stages, got 1"},
      {"a short mapping", with(stages(), on({0, 1})),
       "Each stage must be mapped to a device: 2 mappings != 3 stages"},
      {"a negative device", with(stages(), on({0, -1, 1})),
       "the device of stage 1 must be from 0 to 4095, got -1"},
      {"accumulate 0", with(stages(), [](PipelineOptions& o) { o.accumulate = 0; }),
       "accumulate must be given and at least 1, got 0"},
      {"device_iterations 0", with(stages(), [](PipelineOptions& o) { o.device_iterations = 0; }),
       "device_iterations: must be an integer from 1 to 2147483647, got '0'"},
      {"slices", with(stages(), [](PipelineOptions& o) { o.batch_serialization_iterations = 4; }),
       "batch_serialization_iterations must be 1, got 4"},
      {"concurrent stages without devices", with(side_by_side(true), as_is),
       "device_mapping must be given"},
      {"lists of different lengths", with(side_by_side(true), on({0, 1, 2})),
       "stage 1 must have one device for each of its functions, got 1 devices for 2 functions"},
      {"a list for one function", with(side_by_side(false), on({0, {1, 2}, 2})),
       "got 2 devices for 1 functions"},
      {"a name twice", with(stages(), [](PipelineOptions& o) { o.inputs[0].name = "x"; }),
       "different names, got 'x' twice"},
      {"a rate of micro-batches",
       with(stages(), [](PipelineOptions& o) { o.learning_rate = StreamedRate{"scale"}; }),
       "the learning rate must be a field that is given once a run, 'scale' is not"},
  });
}

TEST(PipelineFunctions, AreRefusedWithWrongValues) {
  const auto returns = [](auto last) {
    std::vector<PipelineStage> all = stages();
    all[2] = last;
    return all;
  };
  const auto slow = [](nn::Builder& b, const StageInputs& in) { return linear(b, "slow", in[0]); };
  const auto twice = [](nn::Builder&, const StageInputs& in) { return in["x"] + in["x"]; };
  const auto sum = [](nn::Builder&, const StageInputs& in) { return ops::mean(in[0]); };
  const auto only_loss = [](PipelineOptions& o) { o.outputs = {}; };
  expect_refused({
      {"a loss with a shape", with(returns(slow), only_loss),
       "a floating-point scalar, got (4, 6) float32"},
      {"an output without a name", with(stages(), only_loss),
       "The last computational stage has tensor outputs that go nowhere: it returns 2, but outputs "
       "names 1"},
      {"outputs without names or an optimizer",
       with(stages(),
            [](PipelineOptions& o) {
              o.outputs = {};
              o.optimizer.reset();
              o.learning_rate = PipelineOptions().learning_rate;
            }),
       "The last computational stage has tensor outputs that go nowhere: it returns 2, but outputs "
       "names 0"},
      {"a name without an output", with(returns(sum), as_is),
       "a tensor for each of 2 outputs, got 1"},
      {"no variable", with({sum, sum}, only_loss), "No variables to optimize"},
      {"an argument too many",
       with({stages()[0], [](nn::Builder&, const StageInputs& in) { return in[1]; }}, only_loss),
       "stage1 must read an argument below 1, got 1"},
      {"a stage whose result nothing reads",
       with({twice, twice,
             [](nn::Builder& b, const StageInputs& in) {
               return ops::mean(linear(b, "last", in["x"]) * in["scale"]);
             }},
            only_loss),
       "Unknown Block 'stage0': the blocks of the model are stage2; a block that no result "
       "needs is left out"},
      {"a field that no stage reads",
       with(stages(),
            [](PipelineOptions& o) {
              o.fields.push_back({.name = "mask", .spec = f32_spec({kBatch})});
            }),
       "must be read by a stage, but 'mask' is not"},
  });
}

TEST(PipelineFunctions, AreRefusedIfConcurrentOnesDependOnEachOther) {
  const auto with = [](const StageFunction& left, const StageFunction& right) {
    return [left, right] {
      PipelineOptions options = three_stage_options(2);
      options.device_mapping = {0, {1, 2}, 2};
      std::vector<PipelineStage> all = side_by_side(true);
      all[1] = {left, right};
      Ir ir;
      pipeline(ir, all, options);
    };
  };
  const auto made = std::make_shared<Tensor>();
  const auto first = [made](nn::Builder& b, const StageInputs& in) {
    return *made = linear(b, "left", in[0]);
  };
  const auto weight = std::make_shared<Tensor>();
  const auto owner = [weight](nn::Builder& b, const StageInputs& in) {
    *weight = b.add_variable_input("shared", nn::constant(0.5), {kWidth});
    return in[0] * *weight;
  };
  expect_refused(
      {{"a value of the other",
        with(first,
             [made](nn::Builder&, const StageInputs& in) -> Tensors {
               return {ops::relu(*made), in[0]};
             }),
        "concurrent stages must not read values of each other, but block 'stage1.1' reads"},
       {"a weight of the other",
        with(owner,
             [weight](nn::Builder&, const StageInputs& in) -> Tensors {
               return {in[0] + *weight, in[0]};
             }),
        "concurrent stages must not share weights, but blocks 'stage1.0' and 'stage1.1' read "
        "'shared'"}});
}

}  // namespace
}  // namespace sluice::train
