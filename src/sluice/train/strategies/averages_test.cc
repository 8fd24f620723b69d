// Options::ema_decay: the numbers of the averages, their bits in every strategy, and which programs
// read them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "sluice/base/test_refusals.h"
#include "sluice/exe/executable.h"
#include "sluice/train/cut/test_ways.h"
#include "sluice/train/model.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

using Doubles = std::vector<double>;

// Equal blocks, whose weights are rows of remote variables in phases, a tied weight, and a running
// variable.
Network averaged_network() {
  return network([](nn::Builder& b, const Inputs& in) {
    Tensor x, shared;
    {
      const nn::Block block(b, "In");
      shared = b.add_variable_input("shared", nn::normal(0, 0.4), {kWidth, kWidth});
      x = b.inlined("norm", nn::BatchNorm(), ops::matmul(in["x"], shared));
    }
    for (const char* name : {"A", "B", "C"}) {
      const nn::Block block(b, name);
      x = ops::gelu(linear(b, name, x));
    }
    const nn::Block block(b, "D");
    x = ops::matmul(ops::relu(x), shared);
    return results(in, linear(b, "D", x, 3) * in["scale"]);
  });
}

// The loss w·x of a weight, whose gradient is x.
Network product_with(const Doubles& x, const Doubles& first) {
  const auto n = static_cast<int64_t>(x.size());
  HostTensor value(f32_spec({n}));
  for (size_t i = 0; i < first.size(); ++i) value.as<float>()[i] = static_cast<float>(first[i]);
  return {Written([n, value](nn::Builder& b, const Inputs& in) {
            const Tensor w = b.add_variable_input("w", nn::array(value), {n});
            const Tensor product = ops::sum(w * in["x"]);
            return Results{.losses = {{.value = product}}, .predictions = {{"product", product}}};
          }),
          {{.name = "x", .spec = f32_spec({n})}}};
}

// Expected numbers: torch.optim.swa_utils.get_ema_multi_avg_fn(0.9) after each of five updates of
// torch.optim.SGD with the rate 0.1.
TEST(Averages, HaveTheNumbersOfPyTorch) {
  const Doubles x{1, 2, -3, 0.5};
  Ir ir;
  const Training t = build_training(ir, product_with(x, {1, -0.5, 0.25, 3}), nn::Optimizer::sgd(),
                                    {.learning_rate = 0.1, .ema_decay = 0.9});
  Session session(ir, {.device = cpu_device({.threads = 1})});
  EXPECT_EQ(session.read(t.averages["w"]).to_doubles(), (Doubles{1, -0.5, 0.25, 3}));
  StepArrays arrays(t);
  for (size_t i = 0; i < x.size(); ++i) arrays.fields[0].as<float>()[i] = static_cast<float>(x[i]);
  for (int update = 0; update < 5; ++update) session.run(arrays.inputs(t), "train");
  const Doubles want{0.868558943, -0.762881994, 0.644322991, 2.93427944};
  const Doubles got = session.read(t.averages["w"]).to_doubles();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 3e-7) << i;
}

// The factors of a weight that does not change sum to 1, so that its average does not drift.
TEST(Averages, OfAConstantWeightAreTheWeight) {
  for (const double decay : {0.0, 0.3, 0.9, 0.999, 0.9999}) {
    Ir ir;
    const Training t = build_training(ir, product_with({0, 0, 0}, {1, -0.7, 3.3}),
                                      nn::Optimizer::sgd(), {.ema_decay = decay});
    Session session(ir, {.device = cpu_device({.threads = 1})});
    StepArrays arrays(t);
    for (int update = 0; update < 200; ++update) session.run(arrays.inputs(t), "train");
    const Doubles got = session.read(t.averages["w"]).to_doubles();
    const Doubles want = session.read(t.variables["w"]).to_doubles();
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-6 * std::abs(want[i])) << decay << ", " << i;
  }
}

TEST(Averages, HaveTheBitsOfTheResidentStepInEveryStrategy) {
  size_t draw = 0;
  std::set<std::string> digests;
  for (const int replicas : {1, 2}) {
    for (const int64_t accumulate : {1, 3}) {
      const Options options{.accumulate = accumulate,
                            .max_grad_norm = draw % 2 == 1 ? std::optional(0.05) : std::nullopt,
                            .freeze = {draw % 2 == 0 ? "B.*" : "A.bias"},
                            .ema_decay = 0.75};
      std::string first;
      for (const Way& way : share(ways(Ways::kAll, 5), 2, draw++)) {
        const std::string digest = run(averaged_network(), with_reductions_of(way.step, options),
                                       replicas, 2, way.more_devices)
                                       .digest;
        if (first.empty()) first = digest;
        EXPECT_EQ(digest, first) << way.name << ", accumulate " << accumulate << ", " << replicas
                                 << " replicas";
      }
      digests.insert(first);
    }
  }
  EXPECT_EQ(digests.size(), 4u);
}

// Averages are as large as the trained weights, or as their shards.
TEST(Averages, AreInThePlan) {
  const auto planned = [](std::optional<double> decay, const TensorLocations& where, int replicas) {
    Ir ir(replicas);
    const Training t = build_training(ir, averaged_network(), nn::Optimizer::sgd(),
                                      {.locations = where, .ema_decay = decay});
    Session session(ir, {.device = cpu_device({.threads = 1}), .remote = "host"});
    EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
    int64_t bytes = 0;
    for (const auto& v : session.executable().variables) {
      if (v.path.starts_with("ema.")) bytes += v.spec.elements() * 4;
    }
    return std::pair(bytes, session.planned_bytes());
  };
  const auto [none, without] = planned({}, {}, 1);
  const auto [bytes, with] = planned(0.9, {}, 1);
  EXPECT_EQ(none, 0);
  const int64_t norm = 2 * kWidth;
  const int64_t weights = norm + kWidth * kWidth + 3 * (kWidth * kWidth + kWidth) + 3 * kWidth + 3;
  EXPECT_EQ(bytes, 4 * weights);
  EXPECT_GE(with - without, bytes);
  const auto [shards, sharded] = planned(0.9, {.min_elements_sharded = 2}, 3);
  EXPECT_LT(shards, bytes / 2);
  const auto [there, remote] = planned(0.9, {.optimizer = Location::kRemote}, 1);
  EXPECT_LT(remote, with);
}

// Every program that infers reads the averages; the training reads the weights.
TEST(Averages, AreReadByEvaluation) {
  const Options options{
      .learning_rate = 0.5, .ema_decay = 0.5, .session = {.device = cpu_device({.threads = 1})}};
  const Network n =
      classifier(nn::Linear(test::kClasses), f32_spec({test::kMicroBatch, test::kFeatures}));
  TrainingModel model = training_model(n, options, nn::Optimizer::adam());
  InferenceModel same_session = inference_model(model);
  model.compile();
  Options infer = options;
  infer.ema_decay.reset();
  InferenceModel other_session = inference_model(model, infer);
  InferenceModel alone = inference_model(n, infer);
  const data::Element samples = test::samples(test::kMicroBatch);
  const auto scores = [&](InferenceModel& m) { return m(samples)["logits"].to_doubles(); };
  for (int update = 0; update < 3; ++update) model(samples);
  const Doubles weight = model.weight("weight").to_doubles();
  const Doubles average = model.weight("ema.weight").to_doubles();
  EXPECT_NE(weight, average);
  const std::string file = testing::TempDir() + "averages_test.safetensors";
  model.save(file);
  for (const std::string& unused : alone.load(file))
    EXPECT_TRUE(unused.ends_with("_order") || unused.ends_with(".step")) << unused;
  EXPECT_EQ(alone.session().read(alone.programs().variables["weight"]).to_doubles(), average);
  const Doubles got = scores(same_session);
  EXPECT_EQ(scores(other_session), got);
  EXPECT_EQ(scores(alone), got);
  // With weights in place of averages, the results differ.
  alone.load(file, {.names = {{"ema.*", ""}}});
  EXPECT_EQ(alone.session().read(alone.programs().variables["weight"]).to_doubles(), weight);
  EXPECT_NE(scores(alone), got);
}

TEST(Averages, AreSavedAndLoaded) {
  const auto with = [](std::optional<double> decay) {
    return training_model(
        classifier(nn::Linear(test::kClasses), f32_spec({test::kMicroBatch, test::kFeatures})),
        {.learning_rate = 0.5,
         .ema_decay = decay,
         .session = {.device = cpu_device({.threads = 1})}},
        nn::Optimizer::adam());
  };
  const data::Element samples = test::samples(test::kMicroBatch);
  const auto value = [](TrainingModel& m, const char* path) { return m.weight(path).to_doubles(); };
  const std::string file = testing::TempDir() + "averages_test.safetensors";
  const std::string plain = testing::TempDir() + "averages_test_plain.safetensors";
  TrainingModel model = with(0.5);
  model(samples);
  model.save(file);
  TrainingModel loaded = with(0.5);
  EXPECT_TRUE(loaded.load(file).empty());
  EXPECT_EQ(value(loaded, "ema.weight"), value(model, "ema.weight"));
  model(samples);
  loaded(samples);
  EXPECT_EQ(value(loaded, "ema.weight"), value(model, "ema.weight"));
  // Averages that a file does not have start as the weights.
  TrainingModel without = with({});
  without(samples);
  without.save(plain);
  TrainingModel fresh = with(0.5);
  EXPECT_TRUE(fresh.load_weights(plain).empty());
  EXPECT_EQ(value(fresh, "weight"), value(without, "weight"));
  EXPECT_EQ(value(fresh, "ema.weight"), value(without, "weight"));
  TrainingModel started = with(0.5);
  expect_refused({{"strict", [&] { started.load(plain); }, "variable 'ema.", ErrorKind::kBadFile}});
  EXPECT_TRUE(started.load(plain, {.strict = false}).missing.empty());
  EXPECT_EQ(value(started, "ema.bias"), value(without, "bias"));
  // A training without averages lists them.
  EXPECT_EQ(without.load(file), (std::vector<std::string>{"ema.bias", "ema.weight"}));
}

TEST(Averages, AreRefusedWhereTheyCannotBe) {
  const auto build = [](const Network& n, double decay) {
    return [=] { build_training(Ir(), n, nn::Optimizer::sgd(), {.ema_decay = decay}); };
  };
  const Network named = network([](nn::Builder& b, const Inputs& in) {
    const Tensor x = linear(b, "ema.A", linear(b, "A", in["x"]));
    return results(in, linear(b, "B", x, 3) * in["scale"]);
  });
  const Network half = network([](nn::Builder& b, const Inputs& in) {
    const Tensor w = b.add_variable_input("w", nn::normal(0, 0.4), {kWidth, 3}, f16);
    return results(in, ops::cast(ops::matmul(ops::cast(in["x"], f16), w), f32) * in["scale"]);
  });
  expect_refused({
      {"a decay of 1", build(averaged_network(), 1), "ema_decay: must be "},
      {"a decay below 0", build(averaged_network(), -0.5), "ema_decay: must be "},
      {"f16", build(half, 0.9), "ema_decay: trained weights must be float32, got float16 for 'w'"},
      {"a path", build(named, 0.9),
       "ema_decay: variables must not have the path of the average of "
       "'A."},
      {"inference", [] { build_inference(Ir(), averaged_network(), {.ema_decay = 0.9}); },
       "inference: ema_decay requires an optimizer; leave it out"},
  });
}

}  // namespace
}  // namespace sluice::train
