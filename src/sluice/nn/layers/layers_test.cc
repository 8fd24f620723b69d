#include "sluice/nn/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sluice/base/provenance.h"
#include "sluice/base/test_refusals.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ir/verify.h"
#include "sluice/nn/graph_cache.h"
#include "sluice/nn/test_util.h"

namespace sluice::nn {
namespace {

HostTensor ramp(const Shape& shape) {
  HostTensor t(f32_spec(shape));
  float next = 0.5f;
  for (float& x : t.as<float>()) x = next += 0.25f;
  return t;
}

TEST(Linear, TakesAnyLeadingAxes) {
  Ir ir;
  const auto [factories, graph] = create_graph(ir, Linear(3), f32_spec({5, 2, 4}));
  EXPECT_EQ(graph.graph().outputs()[0].shape(), (Shape{5, 2, 3}));
  const auto [half, plain] = create_graph(ir, Linear(3, Bias::kNone), TensorSpec{{2, 4}, f16, {}});
  EXPECT_EQ(half.keys_flat(), (std::vector<std::string>{"weight"}));
  EXPECT_EQ(half["weight"].spec().dtype, f16);
  usage_error([] { Linear(0); });
  usage_error([&] { create_graph(ir, Linear(3), f32_spec({})); });
}

// Returns the first values of a variable of a layer with 500 inputs and 200 outputs.
HostTensor first_values(WeightInit init, const std::string& key) {
  Ir ir;
  const auto [factories, graph] =
      create_graph(ir, Linear(200, Bias::kAdd, init), f32_spec({1, 500}));
  const NamedTensors variables = factories.init(ir.main_graph());
  const Tensor& v = variables[key];
  return v.graph().info(v).variable->initializer.evaluate(v.spec());
}

// Deviation of a layer's first weights, and the fraction beyond two deviations of 0.02.
std::pair<double, double> first_weights(WeightInit init) {
  const HostTensor values = first_values(init, "weight");
  double squares = 0;
  int64_t far = 0;
  for (const float x : values.as<float>()) {
    squares += double{x} * double{x};
    far += std::abs(x) > 0.04f;
  }
  const auto count = static_cast<double>(values.elements());
  return {std::sqrt(squares / count), static_cast<double>(far) / count};
}

TEST(Linear, FirstWeightsHaveTheDistributionThatIsAskedFor) {
  const auto [normal, normal_far] = first_weights(WeightInit::kNormal);
  EXPECT_NEAR(normal, 0.02, 2e-4);
  EXPECT_NEAR(normal_far, 0.0455, 3e-3);
  const auto [truncated, truncated_far] = first_weights(WeightInit::kTruncatedNormal);
  EXPECT_NEAR(truncated, 0.02 * 0.8796, 2e-4);  // Deviation of N(0, 1) within two deviations.
  EXPECT_EQ(truncated_far, 0);
  EXPECT_NEAR(first_weights(WeightInit::kHe).first, std::sqrt(2.0 / 500), 6e-4);
  EXPECT_NEAR(first_weights(WeightInit::kHeFanOut).first, std::sqrt(2.0 / 200), 9e-4);
  EXPECT_NEAR(first_weights(WeightInit::kHeUniform).first, std::sqrt(2.0 / 500), 6e-4);
  EXPECT_NEAR(first_weights(WeightInit::kXavier).first, std::sqrt(2.0 / 700), 6e-4);
  EXPECT_NEAR(first_weights(WeightInit::kXavierUniform).first, std::sqrt(2.0 / 700), 6e-4);
  EXPECT_NEAR(first_weights(WeightInit::kOrthogonal).first, std::sqrt(1.0 / 500), 1e-6);
  EXPECT_NEAR(first_weights(WeightInit::kUniform).first, std::sqrt(1.0 / 1500), 3e-4);
}

TEST(Linear, UniformFirstValuesHaveBoundsAlsoInTheBias) {
  for (const auto& [init, bound] : {std::pair(WeightInit::kUniform, std::sqrt(1.0 / 500)),
                                    std::pair(WeightInit::kHeUniform, std::sqrt(6.0 / 500)),
                                    std::pair(WeightInit::kXavierUniform, std::sqrt(6.0 / 700))}) {
    const std::vector<double> weight = first_values(init, "weight").to_doubles();
    const auto [min, max] = std::minmax_element(weight.begin(), weight.end());
    EXPECT_NEAR(*min, -bound, 1e-3 * bound);
    EXPECT_NEAR(*max, bound, 1e-3 * bound);
    const std::vector<double> bias = first_values(init, "bias").to_doubles();
    const double largest = *std::max_element(bias.begin(), bias.end());
    EXPECT_NEAR(largest, init == WeightInit::kUniform ? bound : 0, 0.05 * bound);
  }
}

TEST(Sequential, NumbersItsModules) {
  Ir ir;
  const auto [factories, graph] =
      create_graph(ir, Sequential(Linear(3), Relu(), Linear(2)), f32_spec({1, 4}));
  EXPECT_EQ(graph.graph().name(), "Sequential_subgraph(0)");
  EXPECT_EQ(factories.keys_flat(),
            (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"}));
  EXPECT_EQ(graph.graph().ops()[2].provenance->module_path, "1");
}

class Inlined : public Module {
 public:
  Tensor build(Builder& b, Tensor x, Tensor seed) const { return drop_(b, x, seed); }

 private:
  Child<Dropout> drop_{*this, "drop", 0.5};
};

class Layers : public Module {
 public:
  Tensors build(Builder& b, Tensor x, Tensor seed) const {
    return {first_(b, x, seed), second_(b, x, seed)};
  }

 private:
  Child<Inlined> first_{*this, "first"};
  Child<Inlined> second_{*this, "second"};
};

class LayersOutlined : public Module {
 public:
  Tensors build(Builder& b, Tensor x, Tensor seed) const {
    const auto [factories, layer] = create_graph(b.ir(), Inlined(), x, seed);
    return {layer.call(x, fold_seed(seed, "first"))[0],
            layer.call(x, fold_seed(seed, "second"))[0]};
  }
};

TEST(Dropout, MaskIsTheModulesPathInlinedOrOutlined) {
  Ir ir;
  const TensorSpec seed_spec{{2}, u32, {}};
  const auto [f1, inlined] = create_graph(ir, Layers(), f32_spec({100}), seed_spec);
  const auto [f2, outlined] = create_graph(ir, LayersOutlined(), f32_spec({100}), seed_spec);
  verify(ir);
  Interpreter interpreter(ir);
  const HostTensor seed = HostTensor::of<uint32_t>({2}, u32, {1, 2});
  const auto a = interpreter.evaluate(inlined.graph(), {ramp({100}), seed});
  const auto b = interpreter.evaluate(outlined.graph(), {ramp({100}), seed});
  EXPECT_TRUE(a[0].same_bits(b[0]));
  EXPECT_TRUE(a[1].same_bits(b[1]));
  EXPECT_FALSE(a[0].same_bits(a[1]));
  int kept = 0;
  for (size_t i = 0; i < 100; ++i) {
    const float x = ramp({100}).as<float>()[i];
    const float y = a[0].as<float>()[i];
    EXPECT_TRUE(y == 0 || y == 2 * x);
    kept += y != 0;
  }
  EXPECT_GT(kept, 30);
  EXPECT_LT(kept, 70);
}

TEST(Dropout, IsTheIdentityWhenEvaluating) {
  Ir ir;
  const auto [factories, graph] =
      create_graph(ir, Dropout(0.5, RunMode::kEvaluate), f32_spec({4}), TensorSpec{{2}, u32, {}});
  EXPECT_TRUE(graph.graph().ops().empty());
  usage_error([] { Dropout(1.0); });
  usage_error([] { Dropout(-0.1); });
}

struct Drop : Module {
  Tensor build(Builder& b, Tensor x) const { return drop_(b, x); }
  Child<Dropout> drop_{*this, "drop", 0.5};
};

TEST(Dropout, TakesItsSeedFromTheBuilder) {
  Ir ir;
  const auto [factories, graph] = create_eval_graph(ir, Drop(), f32_spec({4}));
  EXPECT_TRUE(graph.graph().ops().empty());
  EXPECT_NE(usage_error([&] { create_graph(ir, Drop(), f32_spec({4})); })
                .find("module 'drop': graph Drop_subgraph(1) must have a seed, got none; a "
                      "train::Network has one, and other graphs pass it as an argument"),
            std::string::npos);
  internal::BuildState state{ir.create_empty_graph("f"), {}, {}, RunMode::kEvaluate};
  EXPECT_NE(usage_error([&] { (void)Builder(state).seed(); }).find("exists in training only"),
            std::string::npos);
  const auto [none, drawn] =
      create_eval_graph(ir, Inlined(), f32_spec({4}), TensorSpec{{2}, u32, {}});
  EXPECT_TRUE(drawn.graph().ops().empty());
}

TEST(Losses, SquaredError) {
  Ir ir;
  Interpreter interpreter(ir);
  const auto value = [&](ops::LossReduction reduction) {
    const auto [factories, graph] =
        create_graph(ir, SquaredError(reduction), f32_spec({2}), f32_spec({2}));
    return interpreter
        .evaluate(graph.graph(), {HostTensor::of<float>({2}, f32, {1, 5}),
                                  HostTensor::of<float>({2}, f32, {3, 2})})[0]
        .to_doubles();
  };
  EXPECT_EQ(value(ops::LossReduction::kMean), std::vector<double>{6.5});
  EXPECT_EQ(value(ops::LossReduction::kSum), std::vector<double>{13});
  EXPECT_EQ(value(ops::LossReduction::kNone), (std::vector<double>{4, 9}));
}

TEST(Losses, CrossEntropyLoss) {
  Ir ir;
  Interpreter interpreter(ir);
  const auto [factories, graph] =
      create_graph(ir, CrossEntropyLoss(), f32_spec({2, 2}), i32_spec({2}));
  const auto loss = interpreter.evaluate(graph.graph(),
                                         {HostTensor(f32_spec({2, 2})), HostTensor(i32_spec({2}))});
  EXPECT_NEAR(loss[0].to_doubles()[0], std::log(2.0), 1e-6);
}

TEST(Losses, CrossEntropyLossRefusesBadOptionsAndLabels) {
  Ir ir;
  const auto loss = [&](const CrossEntropyOptions& o, const TensorSpec& x, const TensorSpec& y) {
    return [&ir, o, x, y] { create_graph(ir, CrossEntropyLoss(o), x, y); };
  };
  const TensorSpec x = f32_spec({4, 3}), y = i32_spec({4});
  expect_refused({
      {"smoothing", loss({.label_smoothing = 1.5}, x, y),
       "CrossEntropyLoss: label_smoothing must be in [0, 1], got 1.5"},
      {"weights", loss({.class_weights = {1, 2}}, x, y),
       "CrossEntropyLoss: class_weights must have one number for each of 3 classes, got 2"},
      {"no classes", loss({}, f32_spec({}), i32_spec({})),
       "CrossEntropyLoss: logits must have an axis of classes, got 'x' () float32"},
      {"probabilities", loss({}, x, f32_spec({4})),
       "CrossEntropyLoss: probabilities of classes must be (4, 3) float32 like the logits, got "
       "'x1' (4,) float32"},
      {"labels", loss({}, f32_spec({4, 3, 5}), y), "(C3)"},
  });
}

TEST(Pooling, TakesOneNumberForAllAxes) {
  Ir ir;
  const auto shape = [&](const auto& layer, const Shape& x) {
    return create_graph(ir, layer, f32_spec(x)).second.graph().outputs()[0].shape();
  };
  EXPECT_EQ(shape(MaxPool2d({.kernel = {2}}), {1, 3, 8, 6}), (Shape{1, 3, 4, 3}));
  EXPECT_EQ(shape(MaxPool2d({.kernel = {3}, .stride = {2}, .padding = {1}}), {1, 3, 8, 8}),
            (Shape{1, 3, 4, 4}));
  EXPECT_EQ(shape(AvgPool2d({.kernel = {3}, .stride = {2}, .ceil_mode = true}), {1, 3, 8, 8}),
            (Shape{1, 3, 4, 4}));
  EXPECT_EQ(shape(Flatten(), {2, 3, 4, 5}), (Shape{2, 60}));
  EXPECT_EQ(shape(Flatten(0, 1), {2, 3, 4, 5}), (Shape{6, 4, 5}));
  const auto pool = [&](const ops::PoolOptions& o, const Shape& x) {
    return [&ir, o, x] { create_graph(ir, MaxPool2d(o), f32_spec(x)); };
  };
  expect_refused({
      {"no kernel", pool({}, {1, 1, 4, 4}),
       "MaxPool2d: kernel must have a number of elements, got none"},
      {"three strides", pool({.kernel = {2}, .stride = {1, 1, 1}}, {1, 1, 4, 4}),
       "MaxPool2d: stride must have one number for all 2 spatial axes or one for each, got 3"},
      {"no batch", pool({.kernel = {2}}, {1, 4, 4}),
       "MaxPool2d: x must have a batch, channels and 2 spatial axes, got 'x' (1, 4, 4) float32"},
      {"average without a kernel", [] { AvgPool2d(AvgPoolOptions{}); },
       "AvgPool2d: kernel must have a number of elements, got none"},
  });
}

TEST(Norms, HaveVariablesOfTheNormalizedAxes) {
  Ir ir;
  const auto [group, g] = create_graph(ir, GroupNorm(2), f32_spec({3, 4, 5, 5}));
  EXPECT_EQ(group["weight"].spec().shape, (Shape{4}));
  const auto [layer, l] = create_graph(ir, LayerNorm(2), f32_spec({3, 4, 5, 6}));
  EXPECT_EQ(layer["weight"].spec().shape, (Shape{5, 6}));
  EXPECT_EQ(layer["bias"].spec().shape, (Shape{5, 6}));
  EXPECT_EQ(l.graph().outputs()[0].shape(), (Shape{3, 4, 5, 6}));
  expect_refused({
      {"no axes", [] { LayerNorm(0); }, "LayerNorm: axes must be at least 1, got 0"},
      {"many axes",
       [&] {
         create_graph(ir, LayerNorm(3), f32_spec({2, 2}));
       },
       "LayerNorm: x must have at least 3 axes, got 'x' (2, 2) float32"},
      {"no channels", [&] { create_graph(ir, GroupNorm(2), f32_spec({4})); },
       "GroupNorm: x must have a batch and channels, got 'x' (4,) float32"},
      {"groups",
       [&] {
         create_graph(ir, GroupNorm(3), f32_spec({2, 4, 5}));
       },
       "group_norm (C"},
  });
}

TEST(Norms, OfRootMeanSquaresHaveAWeightOnly) {
  Ir ir;
  const auto [one, o] = create_graph(ir, RMSNorm(), f32_spec({3, 4, 6}));
  EXPECT_EQ(one.keys_flat(), (std::vector<std::string>{"weight"}));
  EXPECT_EQ(one["weight"].spec().shape, (Shape{6}));
  EXPECT_EQ(one["weight"].initializer().text(), "constant(1)");
  const auto [two, t] = create_graph(ir, RMSNorm(2), TensorSpec{{3, 4, 6}, bf16, {}});
  EXPECT_EQ(to_string(two["weight"].spec()), "(4, 6) bfloat16");
  EXPECT_EQ(t.graph().outputs()[0].shape(), (Shape{3, 4, 6}));
  EXPECT_NE(RMSNorm(1, 1e-5).cache_key(), RMSNorm().cache_key());
  expect_refused({
      {"no axes", [] { RMSNorm(0); }, "RMSNorm: axes must be at least 1, got 0"},
      {"many axes",
       [&] {
         create_graph(ir, RMSNorm(3), f32_spec({2, 2}));
       },
       "RMSNorm: x must have at least 3 axes, got 'x' (2, 2) float32"},
      {"epsilon",
       [&] {
         create_graph(ir, RMSNorm(1, -1), f32_spec({2, 2}));
       },
       "rms_norm (C4): epsilon must be finite and >= 0, got -1"},
  });
}

TEST(SwiGLU, HasTheWeightsOfLlama) {
  Ir ir;
  const auto [factories, graph] = create_graph(ir, SwiGLU(6), f32_spec({2, 3, 4}));
  EXPECT_EQ(graph.graph().outputs()[0].shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(factories.keys_flat(),
            (std::vector<std::string>{"gate_proj.weight", "up_proj.weight", "down_proj.weight"}));
  EXPECT_EQ(factories["up_proj.weight"].spec().shape, (Shape{4, 6}));
  EXPECT_EQ(factories["down_proj.weight"].spec().shape, (Shape{6, 4}));
  EXPECT_EQ(factories["down_proj.weight"].initializer().text(), "truncated_normal(0, 0.02)");
  const auto [biased, b] =
      create_graph(ir, SwiGLU(6, Bias::kAdd, WeightInit::kNormal), f32_spec({3, 4}));
  EXPECT_EQ(biased["gate_proj.bias"].spec().shape, (Shape{6}));
  EXPECT_EQ(biased["down_proj.bias"].spec().shape, (Shape{4}));
  EXPECT_EQ(biased["up_proj.weight"].initializer().text(), "normal(0, 0.02)");
  EXPECT_NE(SwiGLU(6).cache_key(), SwiGLU(6, Bias::kAdd).cache_key());
  expect_refused({
      {"hidden", [] { SwiGLU(0); }, "SwiGLU: hidden must be at least 1, got 0"},
      {"scalar", [&] { create_graph(ir, SwiGLU(2), f32_spec({})); },
       "SwiGLU: x must have at least one axis, got 'x' () float32"},
  });
}

TEST(Activations, AreThoseThatAreAskedFor) {
  Ir ir;
  const auto ops_of = [&](const auto& module) {
    std::string types;
    for (const auto& op : create_graph(ir, module, f32_spec({2, 3})).second.graph().ops())
      types += op.def->type + " ";
    return types;
  };
  EXPECT_EQ(ops_of(Gelu()), "GeluErf ");
  EXPECT_EQ(ops_of(Gelu(Approximation::kTanh)), "Gelu ");
  EXPECT_EQ(ops_of(Silu()), "Swish ");
  EXPECT_EQ(ops_of(Softmax(0)), "Softmax ");
  EXPECT_NE(Gelu().cache_key(), Gelu(Approximation::kTanh).cache_key());
  EXPECT_NE(LeakyRelu(1e-7).cache_key(), LeakyRelu(2e-7).cache_key());
  EXPECT_NE(Elu(1).cache_key(), Elu(2).cache_key());
  EXPECT_NE(Softmax(0).cache_key(), Softmax(1).cache_key());
  EXPECT_NE(LogSoftmax(0).cache_key(), LogSoftmax(1).cache_key());
  const std::string message = usage_error([&] { create_graph(ir, Softmax(2), f32_spec({2, 3})); });
  EXPECT_NE(message.find("axis must be in [-2, 2) for shape (2, 3), got 2"), std::string::npos)
      << message;
}

TEST(GraphCache, SharesGraphsOfOneStructure) {
  Ir ir;
  GraphCache cache;
  const auto& first = cache.create_graph(ir, Linear(3), f32_spec({2, 4}));
  const Graph* graph = &first.second.graph();
  EXPECT_EQ(&cache.create_graph(ir, Linear(3), f32_spec({2, 4})).second.graph(), graph);
  EXPECT_NE(&cache.create_graph(ir, Linear(4), f32_spec({2, 4})).second.graph(), graph);
  EXPECT_NE(&cache.create_graph(ir, Linear(3, Bias::kNone), f32_spec({2, 4})).second.graph(),
            graph);
  EXPECT_NE(&cache.create_graph(ir, Linear(3), f32_spec({3, 4})).second.graph(), graph);
  EXPECT_NE(&cache.create_graph(ir, Linear(3), TensorSpec{{2, 4}, f16, {}}).second.graph(), graph);
  EXPECT_EQ(cache.size(), 5u);
  Ir other;
  EXPECT_NE(&cache.create_graph(other, Linear(3), f32_spec({2, 4})).second.graph(), graph);
  // The factories create variables for any number of callers.
  const NamedTensors a = first.first.init(ir.main_graph(), {.prefix = "a"});
  const NamedTensors b = first.first.init(ir.main_graph(), {.prefix = "b"});
  EXPECT_NE(a["weight"], b["weight"]);
}

}  // namespace
}  // namespace sluice::nn
