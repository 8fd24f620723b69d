// The reductions of gradients: their numbers against a closed form, and their bits in every
// strategy.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>

#include "sluice/base/test_refusals.h"
#include "sluice/exe/text.h"
#include "sluice/train/cut/test_ways.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

constexpr int64_t kInputs = 3;
constexpr ReplicaReduction kReplicaReductions[] = {ReplicaReduction::kSum, ReplicaReduction::kMean};

// ---- A linear model, whose gradients a test computes by hand. --------------------------------

// Prediction x·a²·w of weights a, which two blocks read, and w. Loss: the mean of squares.
Network product(int64_t batch) {
  return {Written([](nn::Builder& b, const Inputs& in) {
            Tensor a, x;
            {
              const nn::Block block(b, "A");
              a = b.add_variable_input("a", nn::constant(0.75), {kInputs});
              x = in["x"] * a;
            }
            {
              const nn::Block block(b, "B");
              x = x * a;
            }
            const nn::Block block(b, "C");
            const Tensor w = b.add_variable_input("w", nn::constant(-0.5), {kInputs, 1});
            const Tensor error = ops::matmul(x, w) - in["target"];
            return Results{.losses = {{.value = ops::mean(error * error)}},
                           .predictions = {{"error", error}}};
          }),
          {{.name = "x", .spec = f32_spec({batch, kInputs})},
           {.name = "target", .spec = f32_spec({batch, 1})}}};
}

float sample(int64_t i) { return std::sin(static_cast<float>(i) * 1.7f); }

struct Weights {
  std::vector<double> a = {0.75, 0.75, 0.75};
  std::vector<double> w = {-0.5, -0.5, -0.5};
};

// Adds `scale` times the gradient of the loss of rows [first, first + batch), in double.
void add_gradient(const Weights& at, int64_t first, int64_t batch, double scale, Weights& sum) {
  for (int64_t row = first; row < first + batch; ++row) {
    double error = -sample(1000 + row);
    for (size_t k = 0; k < kInputs; ++k)
      error += sample(row * kInputs + static_cast<int64_t>(k)) * at.a[k] * at.a[k] * at.w[k];
    const double slope = 2 * error / static_cast<double>(batch) * scale;
    for (size_t k = 0; k < kInputs; ++k) {
      const double x = sample(row * kInputs + static_cast<int64_t>(k));
      sum.a[k] += slope * x * 2 * at.a[k] * at.w[k];
      sum.w[k] += slope * x * at.a[k] * at.a[k];
    }
  }
}

// Two updates w -= rate·gradient by hand.
Weights expected(int64_t accumulate, int replicas, int64_t batch, const Options& options) {
  double scale = 1;
  if (options.accumulation_reduction != Accumulation::kSum)
    scale /= static_cast<double>(accumulate);
  if (options.replica_reduction == ReplicaReduction::kMean) scale /= replicas;
  Weights weights;
  for (int update = 0; update < 2; ++update) {
    Weights gradient{{0, 0, 0}, {0, 0, 0}};
    for (int64_t m = 0; m < accumulate * replicas; ++m)
      add_gradient(weights, m * batch, batch, scale, gradient);
    const double* const given = std::get_if<double>(&options.learning_rate);
    const double rate = given == nullptr ? nn::Optimizer::sgd().default_learning_rate() : *given;
    for (size_t k = 0; k < kInputs; ++k) {
      weights.a[k] -= rate * gradient.a[k];
      weights.w[k] -= rate * gradient.w[k];
    }
  }
  return weights;
}

Weights trained(int replicas, int64_t batch, const Options& options, size_t more_devices = 0) {
  Ir ir(replicas);
  const Training t = build_training(ir, product(batch), nn::Optimizer::sgd(), options);
  Session session(ir, {.device = cpu_device({.threads = 1}),
                       .more_devices = std::vector(more_devices, cpu_device()),
                       .remote = "host"});
  StepArrays arrays(t);
  for (int update = 0; update < 2; ++update) {
    for (size_t f = 0; f < 2; ++f) {
      int64_t next = f == 0 ? 0 : 1000;
      for (float& x : arrays.fields[f].as<float>()) x = sample(next++);
    }
    session.run(arrays.inputs(t), "train");
  }
  Weights result;
  result.a = session.read(t.variables["a"]).to_doubles();
  result.w = session.read(t.variables["w"]).to_doubles();
  return result;
}

void expect_near(const Weights& got, const Weights& want, double tolerance,
                 const std::string& name) {
  for (size_t k = 0; k < kInputs; ++k) {
    EXPECT_NEAR(got.a[k], want.a[k], tolerance) << name << ", a[" << k << "]";
    EXPECT_NEAR(got.w[k], want.w[k], tolerance) << name << ", w[" << k << "]";
  }
}

// Each way runs with every size, and with every reduction over micro-batches and over replicas.
TEST(Reductions, HaveTheNumbersOfAClosedFormInEveryStrategy) {
  size_t draw = 0;
  for (const auto& [accumulate, replicas] : {std::pair(int64_t{5}, 3), {4, 1}, {1, 2}}) {
    for (const Accumulation accumulation : test::kAccumulations) {
      for (const ReplicaReduction over : kReplicaReductions) {
        const Options options{.accumulate = accumulate,
                              .learning_rate = 0.02,
                              .accumulation_reduction = accumulation,
                              .replica_reduction = over};
        const Weights want = expected(accumulate, replicas, 2, options);
        for (const Way& way : share(ways(), 3, draw)) {
          expect_near(trained(replicas, 2, with_reductions_of(way.step, options), way.more_devices),
                      want, 2e-6,
                      fmt::format("{}: {} of {} micro-batches, {} of {} replicas", way.name,
                                  to_string(accumulation), accumulate, to_string(over), replicas));
        }
      }
      ++draw;
    }
    ++draw;
  }
}

TEST(Reductions, OfOneSumScaledByTheRateAreThatOfTheMean) {
  const auto of = [](Accumulation accumulation, double rate) {
    return trained(
        1, 4, {.accumulate = 8, .learning_rate = rate, .accumulation_reduction = accumulation});
  };
  const Weights sum = of(Accumulation::kSum, 0.1 / 8);
  expect_near(of(Accumulation::kMean, 0.1), sum, 1e-6, "mean");
  expect_near(of(Accumulation::kRunningMean, 0.1), sum, 1e-6, "running mean");
}

TEST(Reductions, OfMeansMakeMicroBatchesAndReplicasPartsOfABatch) {
  const auto of = [](int64_t accumulate, int replicas) {
    return trained(replicas, 24 / (accumulate * replicas),
                   {.accumulate = accumulate,
                    .learning_rate = 0.1,
                    .accumulation_reduction = Accumulation::kMean});
  };
  const Weights whole = of(1, 1);
  for (const auto& [accumulate, replicas] :
       {std::pair(int64_t{4}, 1), {1, 3}, {2, 3}, {4, 2}, {3, 4}})
    expect_near(of(accumulate, replicas), whole, 1e-6,
                fmt::format("{} micro-batches, {} replicas", accumulate, replicas));
}

// ---- Bits ----------------------------------------------------------------------------------

// Blocks A, B and C on float16 or float32 weights. A and C share a weight.
Network tied(DType dtype) {
  return network([dtype](nn::Builder& b, const Inputs& in) {
    Tensor shared, x;
    {
      const nn::Block block(b, "A");
      x = ops::cast(in["x"], dtype);
      shared = b.add_variable_input("shared", nn::normal(0, 0.4), {kWidth, kWidth}, dtype);
      x = ops::relu(ops::matmul(x, shared));
    }
    {
      const nn::Block block(b, "B");
      const Tensor w = b.add_variable_input("w", nn::normal(0, 0.4), {kWidth, kWidth}, dtype);
      x = ops::gelu(ops::matmul(x, w) + b.add_variable_input("bias", nn::zeros(), {kWidth}, dtype));
    }
    const nn::Block block(b, "C");
    const Tensor last = b.add_variable_input("last", nn::normal(0, 0.4), {kWidth, 3}, dtype);
    x = ops::matmul(ops::relu(ops::matmul(x, shared)), last);
    return results(in, ops::cast(x, f32) * in["scale"]);
  });
}

// Expects the digest of the first way in all ways, and returns it.
std::string one_digest(const Network& n, const Options& options, int replicas,
                       const std::vector<Way>& all = ways(Ways::kSome)) {
  std::string first;
  for (const Way& way : all) {
    const std::string digest = run(n, with_reductions_of(way.step, options), replicas,
                                   1 + static_cast<int>(way.name.size()) % 3, way.more_devices)
                                   .digest;
    if (first.empty()) first = digest;
    EXPECT_EQ(digest, first) << way.name << ", accumulate " << options.accumulate << ", "
                             << to_string(options.accumulation_reduction) << ", "
                             << to_string(options.replica_reduction) << ", " << replicas
                             << " replicas";
  }
  return first;
}

TEST(Reductions, HaveOneDigestInAllStrategies) {
  const Network n = tied(f32);
  std::set<std::string> digests;
  size_t draw = 0;
  for (const ReplicaReduction over : kReplicaReductions) {
    for (const Accumulation accumulation : test::kAccumulations)
      digests.insert(one_digest(
          n, {.accumulate = 5, .accumulation_reduction = accumulation, .replica_reduction = over},
          3, share(ways(), 2, draw++)));
  }
  EXPECT_EQ(digests.size(), 6u);
}

TEST(Accumulators, OfEachDtypeHaveOneDigestInAllStrategies) {
  size_t first_draw = 0;
  for (const DType dtype : {f32, f16}) {
    const Network n = tied(dtype);
    for (const int64_t accumulate : {1, 3}) {
      std::set<std::string> digests;
      size_t draw = first_draw++;
      for (const AccumulatorDtype& accumulator :
           {AccumulatorDtype(), AccumulatorDtype(f32), AccumulatorDtype(f16),
            AccumulatorDtype(bf16),
            AccumulatorDtype([](const std::string&path, const TensorSpec&spec) {
              return path == "shared" ? f32 : spec.dtype == f16 ? bf16 : f16;
            })}) {
        digests.insert(one_digest(
            n,
            {.accumulate = accumulate,
             .accumulation_reduction = accumulate == 3 ? Accumulation::kSum : Accumulation::kMean,
             .accumulator_dtype = accumulator},
            accumulate == 3 ? 2 : 3, share(ways(Ways::kSome), 3, draw++)));
      }
      EXPECT_EQ(digests.size(), 4u) << name_of(dtype) << ", accumulate " << accumulate;
    }
  }
}

TEST(Accumulators, OfTheVariablesDtypeAreThePlanOfTheDefault) {
  const auto text = [](const AccumulatorDtype& dtype, const Strategy& strategy) {
    Ir ir(2);
    build_training(ir, tied(f16), nn::Optimizer::adam(),
                   {.strategy = strategy, .accumulate = 3, .accumulator_dtype = dtype});
    const Session session(
        ir, {.device = cpu_device({.threads = 1}), .more_devices = {cpu_device(), cpu_device()}});
    return exe::to_text(session.executable());
  };
  const auto own = [](const std::string&, const TensorSpec& v) { return v.dtype; };
  for (const Strategy& strategy :
       {Strategy(resident()), Strategy(phased()), Strategy(PipelinedExecution{})}) {
    EXPECT_EQ(text(AccumulatorDtype(own), strategy), text({}, strategy));
    EXPECT_NE(text(AccumulatorDtype(f32), strategy), text({}, strategy));
  }
}

// The loss sum(w·x) with a weight w of 0 has the gradient x.
double weight_after_update(DType dtype, const Options& options, float x) {
  const Network n(Written([dtype](nn::Builder& b, const Inputs& in) {
                    const nn::Block block(b, "A");
                    const Tensor w = b.add_variable_input("w", nn::zeros(), {2}, dtype);
                    const Tensor loss = ops::sum(ops::cast(w, f32) * in["x"]);
                    return Results{.losses = {{.value = loss}}, .predictions = {{"y", loss}}};
                  }),
                  {{.name = "x", .spec = f32_spec({2})}});
  Ir ir;
  const Training t = build_training(ir, n, nn::Optimizer::sgd(), options);
  Session session(ir, {.device = cpu_device({.threads = 1}), .remote = "host"});
  StepArrays arrays(t);
  for (float& entry : arrays.fields[0].as<float>()) entry = x;
  session.run(arrays.inputs(t), "train");
  return session.read(t.variables["w"]).to_doubles()[0];
}

TEST(Accumulators, OfFloat32HoldEightGradientsOfTheLargestFloat16) {
  constexpr float kLargest = 65504;
  for (const Strategy& strategy : {Strategy(resident()), Strategy(phased())}) {
    Options options{.strategy = strategy,
                    .accumulate = 8,
                    .learning_rate = std::ldexp(1.0, -19),
                    .accumulation_reduction = Accumulation::kSum};
    EXPECT_TRUE(std::isinf(weight_after_update(f16, options, kLargest)));
    options.accumulator_dtype = f32;
    // 8 · 65504 / 2^19, which float16 holds.
    EXPECT_EQ(weight_after_update(f16, options, kLargest), -0.99951171875);
    options.learning_rate = std::ldexp(1.0, -16);
    for (const Accumulation mean : {Accumulation::kMean, Accumulation::kRunningMean}) {
      options.accumulation_reduction = mean;
      EXPECT_EQ(weight_after_update(f16, options, kLargest), -0.99951171875);
      EXPECT_EQ(weight_after_update(bf16, options, 65280), -0.99609375);
    }
  }
}

// 2049 needs 12 bits: float16 rounds it to 2048, before it is added.
TEST(Accumulators, RoundGradientsBeforeTheyAreAdded) {
  for (const Strategy& strategy : {Strategy(resident()), Strategy(phased())}) {
    for (const int64_t accumulate : {1, 2}) {
      Options options{.strategy = strategy,
                      .accumulate = accumulate,
                      .learning_rate = 1.0,
                      .accumulation_reduction = Accumulation::kSum};
      const double n = static_cast<double>(accumulate);
      EXPECT_EQ(weight_after_update(f32, options, 2049), -2049 * n);
      options.accumulator_dtype = f16;
      EXPECT_EQ(weight_after_update(f32, options, 2049), -2048 * n);
    }
  }
}

TEST(Accumulators, OfAnyDtypeServeEveryOptimizer) {
  const nn::KeyMatch all = nn::keys_like({"*"});
  for (const nn::Optimizer& optimizer :
       {nn::Optimizer::sgd({.momentum = 0.9, .weight_decay = 0.01}),
        nn::Optimizer::sgd({.momentum = 0.9, .dampening = 0.1}),
        nn::Optimizer::adam({.weight_decay = 0.01}), nn::Optimizer::adamw(),
        nn::Optimizer::adam_f16(), nn::Optimizer::adamax(), nn::Optimizer::lamb(),
        nn::Optimizer::rmsprop({.momentum = 0.9, .centering = nn::Centering::kOn}),
        nn::Optimizer::grouped({{all, nn::Optimizer::lamb()}})}) {
    for (const DType dtype : {f32, f16}) {
      std::string first;
      for (const Strategy& strategy :
           {Strategy(resident()), Strategy(phased()), Strategy(PipelinedExecution{})}) {
        const bool staged = strategy.index() > 1;
        Ir ir(2);
        const Training t =
            build_training(ir, tied(dtype), optimizer,
                           {.strategy = strategy,
                            .accumulate = 2,
                            .locations = {.min_elements_sharded = staged ? 2 : nn::kNeverShard},
                            .accumulation_reduction = Accumulation::kSum,
                            .accumulator_dtype = dtype == f32 ? bf16 : f32,
                            .max_grad_norm = 0.5});
        Session session(ir, {.device = cpu_device({.threads = 1}),
                             .more_devices = std::vector(staged ? 2 : 0, cpu_device()),
                             .remote = "host"});
        StepArrays arrays(t);
        session.run(arrays.inputs(t), "train");
        Digest digest;
        session.each_variable(
            [&](const std::string&, const HostTensor& value) { digest.add(value.bytes()); });
        if (first.empty()) first = digest.hex();
        EXPECT_EQ(digest.hex(), first) << name_of(dtype);
      }
    }
  }
}

// ---- Hooks ---------------------------------------------------------------------------------

Tensor norm_of(const Tensor& t) { return ops::sqrt(ops::sumsquare(ops::cast(t, f32))); }

// Scales a gradient so that its norm is at most 1.
Tensor clipped(const Tensor& gradient, const Tensor&) {
  return gradient / ops::maximum(norm_of(gradient), 1.0);
}

TEST(GradientHook, SeesWholeReducedGradientsInEveryStrategy) {
  const Network n = tied(f32);
  const std::vector<GradientHook> hooks = {
      clipped,
      [](const Tensor& g, const Tensor&) { return ops::minimum(ops::maximum(g, -0.01), 0.01); },
      [](const Tensor& g, const Tensor& v) { return g + 0.1 * v; },
      [](const Tensor& g, const Tensor& v) { return g / ops::maximum(norm_of(v), 0.1); },
      [](const Tensor& g, const Tensor&) { return ops::cast(g, f16); },
      [](const Tensor& g, const Tensor& v) { return v.name() == "shared" ? g * 3.0 : g; },
      [](const Tensor& g, const Tensor& v) { return ops::accumulate_(g, v, 0.5); }};
  std::set<std::string> digests{one_digest(n, {.accumulate = 3}, 2)};
  for (size_t h = 0; h < hooks.size(); ++h) {
    for (const std::optional<double> norm : {std::optional<double>(), std::optional(0.05)})
      digests.insert(one_digest(n,
                                {.accumulate = 3,
                                 .accumulation_reduction = Accumulation::kSum,
                                 .gradient_hook = hooks[h],
                                 .max_grad_norm = norm},
                                2, share(ways(Ways::kSome), 2, h + (norm ? 1 : 0))));
  }
  EXPECT_EQ(digests.size(), 2 * hooks.size() + 1);
  const Options one{.accumulate = 1, .gradient_hook = clipped};
  one_digest(n, one, 3);
}

TEST(GradientHook, LimitsTheNormOfWhatTheOptimizerSees) {
  // Without momentum and with a rate of 1 an update is the gradient: 300 · √2 in norm.
  const Options options{
      .accumulate = 3, .learning_rate = 1.0, .accumulation_reduction = Accumulation::kSum};
  EXPECT_NEAR(weight_after_update(f32, options, 100), -300, 1e-3);
  Options hooked = options;
  hooked.gradient_hook = clipped;
  EXPECT_NEAR(weight_after_update(f32, hooked, 100), -std::sqrt(0.5), 1e-6);
}

// Rows of one loop share the graph of their update. A hook that treats them differently must part
// them.
TEST(GradientHook, MayTreatEqualBlocksDifferently) {
  const Network n = network([](nn::Builder& b, const Inputs& in) {
    Tensor x = in["x"];
    for (int i = 0; i < 5; ++i) {
      const std::string name = "row" + std::to_string(i);
      const nn::Block block(b, name);
      x = ops::gelu(linear(b, name, x));
    }
    const nn::Block block(b, "last");
    return results(in, linear(b, "last", x, 3) * in["scale"]);
  });
  const auto hook = [](const Tensor& g, const Tensor& v) {
    return v.name().starts_with("row3") ? g * 2.0 : v.name().ends_with("bias") ? g : g * 0.5;
  };
  one_digest(n, {.accumulate = 2, .gradient_hook = hook}, 2, ways(Ways::kAll, 6));
}

TEST(GradientHook, AndDtypesAreRefusedByNameOfTheVariable) {
  const auto with = [](const Options& options) {
    return [options] {
      Ir ir;
      build_training(ir, tied(f32), nn::Optimizer::sgd(), options);
    };
  };
  const auto hook = [&](GradientHook f) { return with({.gradient_hook = std::move(f)}); };
  Ir other;
  const Tensor foreign = other.main_graph().scalar(1, f32);
  expect_refused({
      {"another shape", hook([](const Tensor& g, const Tensor&) { return ops::sum(g); }),
       "gradient_hook: the result for 'shared' must be floating point and have the shape of the "
       "variable, (6, 6), got () float32"},
      {"a dtype without gradients",
       hook([](const Tensor& g, const Tensor&) { return ops::cast(g, i32); }),
       "for 'shared' must be floating point"},
      {"no result", hook([](const Tensor&, const Tensor&) { return Tensor(); }),
       "the result for 'shared' must be a tensor of the gradient's graph, got an empty handle"},
      {"a tensor of another graph",
       hook([foreign](const Tensor&, const Tensor&) { return foreign; }),
       "the result for 'shared' must be a tensor of the gradient's graph"},
      {"integers", with({.accumulate = 2, .accumulator_dtype = i32}),
       "accumulator_dtype: must be f32, f16 or bf16 for 'shared', got int32"},
      {"a function that returns integers",
       with({.accumulate = 2,
             .accumulator_dtype =
                 [](const std::string& path, const TensorSpec& spec) {
                   return path == "w" ? u8 : spec.dtype;
                 }}),
       "accumulator_dtype: must be f32, f16 or bf16 for 'w', got uint8"},
      {"inference",
       [] {
         Ir ir;
         build_inference(ir, tied(f32), {.replica_reduction = ReplicaReduction::kSum});
       },
       "inference: replica_reduction requires an optimizer"},
  });
}

}  // namespace
}  // namespace sluice::train
