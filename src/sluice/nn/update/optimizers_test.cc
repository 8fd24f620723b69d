#include "sluice/nn/update/optimizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "sluice/interp/interpreter.h"
#include "sluice/ir/verify.h"
#include "sluice/nn/autodiff.h"
#include "sluice/nn/layers.h"
#include "sluice/nn/test_util.h"

namespace sluice::nn {
namespace {

using Vector = std::vector<double>;

// One parameter of one element. Each run reads its gradient from a stream and updates it once.
class Walk {
 public:
  Walk(Optimizer optimizer, const ops::HyperArg& rate, const UpdateOptions& options = {},
       double start = 1)
      : grad_(ir_.h2d_stream(f32_spec({1}), "grad")) {
    Graph& main = ir_.main_graph();
    w_ = main.variable(HostTensor::of<float>({1}, f32, {static_cast<float>(start)}), "w");
    const Tensor g = main.host_load(grad_);
    states_ = optimizer.apply(main, NamedTensors::from_dict({{"w", w_}}),
                              NamedTensors::from_dict({{"w", g}}), rate, options);
    verify(ir_);
  }
  // Runs once for each gradient and returns the values of the parameter.
  Vector run(const Vector& grads) {
    Interpreter interpreter(ir_, Precision::kDouble);
    Vector path;
    for (const double g : grads) {
      interpreter.run({{grad_, HostTensor::of<double>({1}, f64, {g})}});
      path.push_back(interpreter.read(w_).to_doubles()[0]);
    }
    return path;
  }
  const NamedTensors& states() const { return states_; }

 private:
  Ir ir_;
  H2dStream grad_;
  Tensor w_;
  NamedTensors states_;
};

const Vector kGrads{0.5, -2.0, 0.25, 1.5};

void expect_near(const Vector& got, const Vector& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
}

TEST(Sgd, Plain) {
  Walk walk(Optimizer::sgd(), 0.1);
  Vector want;
  double w = 1;
  for (const double g : kGrads) want.push_back(w -= 0.1 * g);
  expect_near(walk.run(kGrads), want);
  EXPECT_TRUE(walk.states().empty());
}

TEST(Sgd, MomentumAndWeightDecay) {
  Walk walk(Optimizer::sgd({.momentum = 0.9, .weight_decay = 0.1}), 0.05);
  Vector want;
  double w = 1, m = 0;
  for (const double g : kGrads) {
    m = 0.9 * m + g + 0.1 * w;
    want.push_back(w -= 0.05 * m);
  }
  expect_near(walk.run(kGrads), want);
  EXPECT_EQ(walk.states().keys_flat(), (std::vector<std::string>{"w.momentum"}));

  Walk decay(Optimizer::sgd({.weight_decay = 0.1}), 0.05);
  w = 1;
  want.clear();
  for (const double g : kGrads) want.push_back(w -= 0.05 * (g + 0.1 * w));
  expect_near(decay.run(kGrads), want);
}

Vector adam_path(const AdamOptions& o, double lr) {
  Vector path;
  const double beta1 = o.beta1.number(), beta2 = o.beta2.number();
  const double epsilon = o.epsilon.value_or(1e-8).number();
  const double decay = o.weight_decay.value_or(0).number();
  double w = 1, m = 0, v = 0;
  for (size_t t = 1; t <= kGrads.size(); ++t) {
    double g = kGrads[t - 1];
    if (o.decay == WeightDecay::kInGradient) g += decay * w;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const bool corrects = o.bias_correction == BiasCorrection::kOn;
    const double c1 = corrects ? 1 - std::pow(beta1, static_cast<double>(t)) : 1;
    const double c2 = corrects ? 1 - std::pow(beta2, static_cast<double>(t)) : 1;
    double u = (m / c1) / (std::sqrt(v / c2) + epsilon);
    if (o.decay == WeightDecay::kDecoupled) u += decay * w;
    path.push_back(w -= lr * u);
  }
  return path;
}

TEST(Adam, FollowsTheFormula) {
  Walk adam(Optimizer::adam(), 0.01);
  expect_near(adam.run(kGrads), adam_path({}, 0.01));
  EXPECT_EQ(adam.states().keys(), (std::vector<std::string>{"w"}));
  const NamedTensors& states = adam.states();
  EXPECT_EQ(std::set<std::string>({"w.first_order", "w.second_order", "w.step"}), [&] {
    const auto keys = states.keys_flat();
    return std::set<std::string>(keys.begin(), keys.end());
  }());
  EXPECT_EQ(states["w.step"].shape(), Shape{});
  EXPECT_EQ(states["w.step"].name(), "w.step");
  EXPECT_EQ(states["w.first_order"].graph().info(states["w.first_order"]).variable->path,
            "w.first_order");

  const AdamOptions l2{.weight_decay = 0.1};
  expect_near(Walk(Optimizer::adam(l2), 0.01).run(kGrads), adam_path(l2, 0.01));
  const AdamOptions plain{.epsilon = 1e-5, .bias_correction = BiasCorrection::kOff};
  Walk uncorrected(Optimizer::adam(plain), 0.01);
  expect_near(uncorrected.run(kGrads), adam_path(plain, 0.01));
  EXPECT_FALSE(uncorrected.states().contains("w.step"));
}

TEST(Adam, DecoupledWeightDecay) {
  const AdamOptions o{.weight_decay = 0.01, .decay = WeightDecay::kDecoupled};
  expect_near(Walk(Optimizer::adamw(), 0.01).run(kGrads), adam_path(o, 0.01));
}

TEST(Adam, ShortStateOfDocument000) {
  Walk walk(Optimizer::adam_f16(), 0.01);
  // The interpreter computes in double, but rounds the moment and the update to float16 too.
  const Vector path = walk.run(kGrads);
  const Vector want = adam_path({.epsilon = 1e-5, .bias_correction = BiasCorrection::kOff}, 0.01);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(path[i], want[i], 2e-4) << i;
  EXPECT_EQ(walk.states().size_flat(), 2u);
  EXPECT_EQ(walk.states()["w.first_order"].dtype(), f16);
  EXPECT_EQ(walk.states()["w.second_order"].dtype(), f32);
}

TEST(Adam, TheUpdateHasTheMomentsDtype) {
  Ir ir;
  Optimizer optimizer = Optimizer::adam_f16();
  const auto& [factories, step] = optimizer.step_graph(ir, f32_spec({4}), f32_spec({4}));
  const auto& ops = step.graph().ops();
  const auto updater = std::find_if(ops.begin(), ops.end(),
                                    [](const Op& op) { return op.def->type == "AdamUpdater"; });
  ASSERT_NE(updater, ops.end());
  EXPECT_EQ(updater->outputs.size(), 1u);
  EXPECT_EQ(step.graph().spec(updater->outputs[0]).dtype, f16);
}

TEST(Adamax, FollowsTheFormula) {
  constexpr double kBeta1 = 0.8, kBeta2 = 0.7;
  for (const double decay : {0.0, 0.1}) {
    Walk walk(Optimizer::adamax({.beta1 = kBeta1, .beta2 = kBeta2, .weight_decay = decay}), 0.01);
    Vector want;
    double w = 1, m = 0, v = 0;
    for (size_t t = 1; t <= kGrads.size(); ++t) {
      const double g = kGrads[t - 1] + decay * w;
      m = kBeta1 * m + (1 - kBeta1) * g;
      v = std::max(kBeta2 * v, std::abs(g));
      want.push_back(w -= 0.01 * m / (1 - std::pow(kBeta1, static_cast<double>(t))) / (v + 1e-8));
    }
    expect_near(walk.run(kGrads), want);
    EXPECT_EQ(walk.states().size_flat(), 3u);
  }
}

// AdamW has the defaults of torch.optim.AdamW under each of its names. Other forms do not decay
// weights.
TEST(Adam, DefaultsOfTheForm) {
  constexpr auto kDecoupled = WeightDecay::kDecoupled;
  const auto path = [](const Optimizer& optimizer) { return Walk(optimizer, 0.5).run(kGrads); };
  const Vector want = path(Optimizer::adamw({.epsilon = 1e-8, .weight_decay = 0.01}));
  EXPECT_EQ(path(Optimizer::adamw()), want);
  EXPECT_EQ(path(Optimizer::adamw({.beta1 = 0.9})), want);
  EXPECT_EQ(path(Optimizer::adam({.decay = kDecoupled})), want);
  const Vector plain = path(Optimizer::adam({.epsilon = 1e-8, .weight_decay = 0}));
  EXPECT_NE(plain, want);
  EXPECT_EQ(path(Optimizer::adam()), plain);
  EXPECT_EQ(path(Optimizer::adamw({.weight_decay = 0})), plain);
  EXPECT_EQ(path(Optimizer::lamb({.beta1 = 0.9})),
            path(Optimizer::lamb({.epsilon = 1e-6, .weight_decay = 0.01})));
}

TEST(Sgd, StateOfItsForms) {
  const auto keys = [](const SgdOptions& o) {
    const auto keys = Walk(Optimizer::sgd(o), 0.1).states().keys_flat();
    EXPECT_EQ(Optimizer::sgd(o).has_state(), !keys.empty());
    return keys;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys({}), Keys());
  EXPECT_EQ(keys({.momentum = 0.9, .form = SgdForm::kNesterov}), Keys{"w.momentum"});
  EXPECT_EQ(keys({.momentum = 0.9, .dampening = 0.5}), (Keys{"w.momentum", "w.started"}));
}

TEST(Rmsprop, StateOfItsForms) {
  const auto keys = [](const RmspropOptions& o) {
    return Walk(Optimizer::rmsprop(o), 0.1).states().keys_flat();
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys({}), Keys{"w.second_order"});
  EXPECT_EQ(keys({.momentum = 0.9}), (Keys{"w.momentum", "w.second_order"}));
  EXPECT_EQ(keys({.centering = Centering::kOn}), (Keys{"w.first_order", "w.second_order"}));
}

// The parameters have several elements, so that their norms are sums.
TEST(Lamb, FollowsTheFormula) {
  constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-6, kDecay = 0.05;
  constexpr double kRate = 0.1, kFirst[] = {1, -2, 0.5, 0.25, 3};
  constexpr size_t kCount = std::size(kFirst);
  for (const double max : {HUGE_VAL, 1.5}) {
    for (const BiasCorrection correction : {BiasCorrection::kOn, BiasCorrection::kOff}) {
      const AdamOptions o{
          .weight_decay = kDecay, .bias_correction = correction, .max_weight_norm = max};
      Ir ir;
      Graph& main = ir.main_graph();
      const H2dStream grads = ir.h2d_stream(f32_spec({kCount}), "grad");
      std::vector<float> first(std::begin(kFirst), std::end(kFirst));
      const Tensor w = main.variable(HostTensor::of<float>({kCount}, f32, first), "w");
      Optimizer::lamb(o).apply(main, NamedTensors::from_dict({{"w", w}}),
                               NamedTensors::from_dict({{"w", main.host_load(grads)}}), kRate);
      verify(ir);
      Interpreter interpreter(ir, Precision::kDouble);
      Vector want(std::begin(kFirst), std::end(kFirst)), m(kCount), v(kCount), u(kCount);
      for (int t = 1; t <= 4; ++t) {
        HostTensor g({{kCount}, f64, {}});
        double r1 = 0, r2 = 0;
        for (size_t i = 0; i < kCount; ++i) {
          g.as<double>()[i] = kGrads[static_cast<size_t>(t - 1)] * (0.5 + static_cast<double>(i));
          m[i] = kBeta1 * m[i] + (1 - kBeta1) * g.as<double>()[i];
          v[i] = kBeta2 * v[i] + (1 - kBeta2) * g.as<double>()[i] * g.as<double>()[i];
          const bool corrects = correction == BiasCorrection::kOn;
          const double c1 = corrects ? 1 - std::pow(kBeta1, t) : 1;
          const double c2 = corrects ? 1 - std::pow(kBeta2, t) : 1;
          u[i] = m[i] / c1 / (std::sqrt(v[i] / c2) + kEpsilon) + kDecay * want[i];
          r1 += want[i] * want[i];
          r2 += u[i] * u[i];
        }
        for (size_t i = 0; i < kCount; ++i)
          want[i] -= kRate * std::min(std::sqrt(r1), max) / std::sqrt(r2) * u[i];
        interpreter.run({{grads, g}});
        expect_near(interpreter.read(w).to_doubles(), want);
      }
    }
  }
}

// ‖w‖ = 1e30 and ‖u‖ is about 1, so that w -= lr·1e30·u.
TEST(Lamb, ANormWhoseSquareOverflowsHasItsRatio) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor w = main.variable(HostTensor::of<float>({1}, f32, {1e30F}), "w");
  const Tensor g = main.variable(HostTensor::of<float>({1}, f32, {1.0F}), "g");
  Optimizer::lamb({.weight_decay = 0.0})
      .apply(main, NamedTensors::from_dict({{"w", w}}), NamedTensors::from_dict({{"w", g}}), 0.25);
  Interpreter run(ir);
  run.run();
  EXPECT_NEAR(run.read(w).to_doubles()[0] / 1e30, 0.75, 1e-5);
}

TEST(Lamb, NormsAreSummedByReplicaChunks) {
  for (const int replicas : {1, 3}) {
    Ir ir(replicas);
    Optimizer optimizer = Optimizer::lamb();
    const auto& [factories, step] = optimizer.step_graph(ir, f32_spec({2, 5}), f32_spec({2, 5}));
    int sums = 0;
    for (const Op& op : step.graph().ops()) sums += op.def->type == "ReduceSumSquareExtended";
    EXPECT_EQ(sums, 2 * replicas);
    // The other inputs are the variable, its gradient and the step size.
    EXPECT_EQ(step.graph().inputs().size(), 3u + factories.size_flat());
    verify(ir);
  }
}

TEST(Clipping, ScalesOnlyAboveTheNorm) {
  Walk walk(Optimizer::sgd(), 0.1, {.max_grad_norm = 1.0});
  Vector want;
  double w = 1;
  for (const double g : kGrads) want.push_back(w -= 0.1 * g / std::max(1.0, std::abs(g)));
  expect_near(walk.run(kGrads), want);
}

// The sum of squares overflows float32, the gradients and their norm do not.
TEST(Clipping, ANormWhoseSquareOverflowsScalesToTheLimit) {
  Ir ir;
  Graph& main = ir.main_graph();
  GraphCache cache;
  const auto norm_of = [&](const std::vector<float>& values) {
    const Tensor t = main.variable(
        HostTensor::of<float>({static_cast<int64_t>(values.size())}, f32, values), "t");
    const Tensor norm = global_norm({t}, cache);
    return main.host_store(t * clip_factor(norm, 1.0), "clipped");
  };
  const D2hStream large = norm_of({3e30F, -4e30F}), small = norm_of({0.3F, 0.4F});
  Interpreter run(ir);
  const Collected got = run.run();
  const Vector clipped = got[large].to_doubles();
  EXPECT_NEAR(clipped[0], 0.6, 1e-6);
  EXPECT_NEAR(clipped[1], -0.8, 1e-6);
  EXPECT_EQ(got[small].to_doubles(), (Vector{0.3F, 0.4F}));
}

TEST(Clipping, NormIsOfAllTensors) {
  Ir ir;
  Graph& main = ir.main_graph();
  GraphCache cache;
  const Tensor a = main.variable(HostTensor::of<float>({2, 2}, f32, {1, 2, 3, 4}), "a");
  const Tensor b = main.variable(HostTensor::of<float>({2, 2}, f32, {1, 1, 1, 1}), "b");
  const Tensor c = main.variable(HostTensor::of<float>({}, f32, {4}), "c");
  const D2hStream out = main.host_store(global_norm({a, b, c}, cache), "norm");
  EXPECT_EQ(cache.size(), 2u) << "a and b share a graph";
  Interpreter interpreter(ir);
  EXPECT_FLOAT_EQ(interpreter.run()[out].as<float>()[0], std::sqrt(50.0f));
  usage_error([&] { global_norm({}, cache); });
}

// The graph for one tensor's part of the norm must return one sum of squares for each replica.
TEST(Clipping, NormIsSummedByReplicaChunks) {
  Ir ir(2);
  Graph& main = ir.main_graph();
  GraphCache cache;
  const Tensor a = main.variable(HostTensor(f32_spec({5})), "a");
  const Tensor b = main.variable(HostTensor(f32_spec({3})), "b");
  const Tensor c = main.variable(HostTensor(f32_spec({})), "c");
  global_norm({a, b, c}, cache);
  // Expect calls for a, b and c, then a0 + b0 + c0 + a1 + b1. c has one chunk only.
  std::vector<size_t> outputs;
  int adds = 0;
  for (const Op& op : main.ops()) {
    if (op.def->type == "Call") outputs.push_back(op.outputs.size());
    adds += op.def->type == "AddExtended";
  }
  EXPECT_EQ(outputs, (std::vector<size_t>{2, 2, 1}));
  EXPECT_EQ(adds, 4);
  verify(ir);
}

TEST(Optimizer, OneGraphADistinctSpec) {
  Ir ir;
  Graph& main = ir.main_graph();
  NamedTensors variables, grads;
  for (const char* key : {"fc1.weight", "fc2.weight", "fc1.bias", "fc2.bias", "fc3.bias"}) {
    const bool weight = std::string(key).find("weight") != std::string::npos;
    const TensorSpec spec = weight ? f32_spec({4, 4}) : f32_spec({4});
    variables.merge(key, main.variable(spec, zeros(), key));
    grads.merge(key, main.variable(spec, ones(), std::string(key) + "_grad"));
  }
  const int graphs = ir.graph_count();
  const Tensor rate = main.host_load(ir.h2d_stream(f32_spec({}), "rate"));
  const NamedTensors states = Optimizer::sgd({.momentum = 0.9}).apply(main, variables, grads, rate);
  EXPECT_EQ(ir.graph_count(), graphs + 2);
  EXPECT_EQ(states.size_flat(), 5u);
  EXPECT_EQ(states["fc2.weight.momentum"].shape(), (Shape{4, 4}));
  verify(ir);
}

TEST(Optimizer, TensorsAreInputsOfTheStepGraph) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor beta = main.host_load(ir.h2d_stream(f32_spec({}), "beta"));
  const Tensor decay = main.host_load(ir.h2d_stream({{}, f16, {}}, "decay"));
  const auto names = [&](Optimizer optimizer) {
    std::vector<std::string> result;
    const Graph& step = optimizer.step_graph(ir, f32_spec({4}), f32_spec({4})).second.graph();
    for (const Tensor& input : step.inputs()) result.push_back(input.name());
    return result;
  };
  using Names = std::vector<std::string>;
  const Names state{"first_order", "second_order", "step"};
  const auto joined = [&](Names first) {
    first.insert(first.end(), state.begin(), state.end());
    return first;
  };
  EXPECT_EQ(names(Optimizer::adam()), joined({"variable", "grad", "step_size"}));
  const Optimizer optimizer = Optimizer::adam({.beta2 = beta, .weight_decay = decay});
  EXPECT_EQ(names(optimizer), joined({"variable", "grad", "step_size", "beta2", "weight_decay"}));
  EXPECT_TRUE(Optimizer::adam().hypers().empty());
  ASSERT_EQ(optimizer.hypers().size(), 2u);
  EXPECT_EQ(optimizer.hypers()[0], beta);
  EXPECT_EQ(optimizer.hypers()[1], decay);
}

TEST(ParameterGroups, Patterns) {
  const auto like = [](const char* pattern, const char* key) { return keys_like({pattern})(key); };
  EXPECT_TRUE(like("fc.bias", "fc.bias"));
  EXPECT_FALSE(like("fc.bias", "fc.bias2"));
  EXPECT_FALSE(like("fc.bias", "my.fc.bias"));
  EXPECT_TRUE(like("*.bias", "layers.3.fc.bias"));
  EXPECT_FALSE(like("*.bias", "bias"));
  EXPECT_TRUE(like("layers.*.norm.*", "layers.3.norm.norm.weight"));
  EXPECT_FALSE(like("layers.*.norm.*", "layers.3.norm"));
  EXPECT_TRUE(like("a*b*b", "abab"));
  EXPECT_FALSE(like("a*b*b", "ab"));
  EXPECT_TRUE(like("*", ""));
  EXPECT_FALSE(like("", "w"));
  EXPECT_TRUE(keys_like({"a", "b"})("b"));
  EXPECT_FALSE(keys_unlike({"a", "b"})("b"));
  EXPECT_TRUE(keys_unlike({"a", "b"})("c"));
  EXPECT_FALSE(keys_like({})("a"));
}

// Returns the values of a, b and c after two updates with the gradient 1.
struct Three {
  Ir ir;
  NamedTensors variables, grads;
  explicit Three(const std::vector<std::string>& with_gradient = {"a", "b", "c"}) {
    Graph& main = ir.main_graph();
    for (const char* key : {"a", "b", "c"})
      variables.merge(key, main.variable(f32_spec({2}), ones(), key));
    for (const std::string& key : with_gradient)
      grads.merge(key, main.constant(HostTensor::of<float>({2}, f32, {1, 1}), key));
  }
  Vector run() {
    verify(ir);
    Interpreter interpreter(ir, Precision::kDouble);
    for (int i = 0; i < 2; ++i) interpreter.run();
    Vector result;
    variables.for_each([&](const std::string&, const Tensor& w) {
      result.push_back(interpreter.read(w).to_doubles()[0]);
    });
    return result;
  }
};

TEST(ParameterGroups, OthersAreNotUpdatedAndHaveNoState) {
  Three p({"a", "c"});
  Optimizer optimizer =
      Optimizer::grouped({{keys_like({"a"}), Optimizer::sgd({.momentum = 0.5})},
                          {[](std::string_view key) { return key > "b"; }, Optimizer::sgd(), 2}});
  const NamedTensors states = optimizer.apply(p.ir.main_graph(), p.variables, p.grads, 0.125);
  EXPECT_EQ(states.keys_flat(), std::vector<std::string>{"a.momentum"});
  EXPECT_EQ(p.run(), (Vector{1 - 0.125 - 0.125 * 1.5, 1, 1 - 4 * 0.125}));
  EXPECT_EQ(optimizer.group_of("a"), std::optional<size_t>(0));
  EXPECT_EQ(optimizer.group_of("b"), std::nullopt);
  EXPECT_EQ(optimizer.group_of("c"), std::optional<size_t>(1));
  EXPECT_EQ(Optimizer::adam().group_of("b"), std::optional<size_t>(0));
}

TEST(ParameterGroups, MustMatchAVariable) {
  Three p;
  const auto message = [&](KeyMatch match) {
    return usage_error([&] {
      Optimizer::grouped({{keys_like({"a"}), Optimizer::sgd()}, {match, Optimizer::sgd()}})
          .apply(p.ir.main_graph(), p.variables, p.grads, 0.5);
    });
  };
  EXPECT_EQ(
      message(keys_like({"*.bais", "d"}))
          .find("optimizer: parameter group 1, keys_like(*.bais, d), must match a variable, got "
                "none; variables are a, b, c"),
      0u);
  EXPECT_NE(message(keys_unlike({"*"})).find("group 1, keys_unlike(*), must"), std::string::npos);
  EXPECT_NE(message([](std::string_view) { return false; }).find("group 1, a function, must"),
            std::string::npos);
}

TEST(ParameterGroups, NormIsOfUpdatedVariables) {
  Three p;
  Optimizer::grouped({{keys_unlike({"b"}), Optimizer::sgd()}})
      .apply(p.ir.main_graph(), p.variables, p.grads, 0.5, {.max_grad_norm = 1});
  // The norm of a and c is 2, that of all variables √6.
  EXPECT_EQ(p.run(), (Vector{0.5, 1, 0.5}));
}

TEST(ParameterGroups, RatesAndFactorsMayBeTensors) {
  for (const bool rate_is_tensor : {false, true}) {
    for (const bool factor_is_tensor : {false, true}) {
      Three p;
      Graph& main = p.ir.main_graph();
      const auto arg = [&](double value, bool tensor) {
        return tensor ? ops::HyperArg(main.scalar(value, f32)) : ops::HyperArg(value);
      };
      Optimizer::grouped({{keys_like({"a"}), Optimizer::sgd(), arg(0.5, factor_is_tensor)},
                          {keys_like({"b"}), Optimizer::sgd()}})
          .apply(main, p.variables, p.grads, arg(0.25, rate_is_tensor));
      EXPECT_EQ(p.run(), (Vector{0.75, 0.5, 1})) << rate_is_tensor << factor_is_tensor;
    }
  }
}

// A program that updates variables one by one, as phases do, computes what apply() computes.
TEST(ParameterGroups, StepGraphsOneByOne) {
  const auto make = [](Ir& ir) {
    const Tensor momentum = ir.main_graph().scalar(0.5, f32);
    const Tensor beta = ir.main_graph().scalar(0.25, f32);
    return Optimizer::grouped({{keys_like({"a"}), Optimizer::sgd({.momentum = momentum}), 0.5},
                               {keys_like({"c"}), Optimizer::adam({.beta2 = beta})}});
  };
  Three whole;
  make(whole.ir).apply(whole.ir.main_graph(), whole.variables, whole.grads, 0.25);

  Three parts;
  Graph& main = parts.ir.main_graph();
  Optimizer optimizer = make(parts.ir);
  parts.variables.for_each([&](const std::string& key, const Tensor& w) {
    const auto group = optimizer.group_of(key);
    if (!group) return;
    const auto& [factories, step] =
        optimizer.step_graph(parts.ir, w.spec(), w.spec(), GradScale::kNone, {}, *group);
    step.bind(factories.init(main, {.prefix = key}))
        .call(w, parts.grads[key], optimizer.step_size(main, 0.25, *group),
              optimizer.hypers(*group));
  });
  const Vector want = whole.run();
  EXPECT_EQ(parts.run(), want);
  EXPECT_NE(want[0], 1);
  EXPECT_EQ(want[1], 1);
  EXPECT_NE(want[2], 1);
}

TEST(Optimizer, Refusals) {
  Ir ir;
  Graph& main = ir.main_graph();
  const NamedTensors w =
      NamedTensors::from_dict({{"w", main.variable(f32_spec({2}), zeros(), "w")}});
  const NamedTensors other =
      NamedTensors::from_dict({{"w", main.variable(f32_spec({3}), zeros(), "g")}});
  EXPECT_EQ(usage_error([&] { Optimizer::sgd().apply(main, w, NamedTensors(), 0.1); }),
            "optimizer: variable 'w' has no gradient; gradients are none");
  EXPECT_EQ(
      usage_error([&] { Optimizer::sgd().apply(main, w, other, 0.1); }),
      "optimizer: gradient of variable 'w' must have the shape of (2,) float32, got (3,) float32");
  const Tensor loaded = main.host_load(ir.h2d_stream(f32_spec({2}), "g"));
  const NamedTensors not_variable = NamedTensors::from_dict({{"w", loaded}});
  usage_error([&] { Optimizer::sgd().apply(main, not_variable, w, 0.1); });
  usage_error([] { Optimizer::sgd({.momentum = 1}); });
  usage_error([] { Optimizer::sgd({.weight_decay = -1}); });
  usage_error([] { Optimizer::adam({.beta1 = -0.1}); });
  usage_error([] { Optimizer::adam({.beta2 = 1}); });
  usage_error([] { Optimizer::adam({.epsilon = 0}); });
  usage_error([&] { Optimizer::sgd().apply(main, w, w, 0.1, {.max_grad_norm = 0.0}); });
}

TEST(Optimizer, HalfPrecisionParameters) {
  Ir ir;
  Graph& main = ir.main_graph();
  const NamedTensors w =
      NamedTensors::from_dict({{"w", main.variable({{2}, f16, {}}, ones(), "w")}});
  const NamedTensors g =
      NamedTensors::from_dict({{"w", main.variable({{2}, f16, {}}, ones(), "g")}});
  for (Optimizer optimizer : {Optimizer::sgd({.momentum = 0.9, .weight_decay = 0.1}),
                              Optimizer::sgd(), Optimizer::adam({.weight_decay = 0.1}),
                              Optimizer::adamw(), Optimizer::adamax(), Optimizer::lamb()}) {
    const NamedTensors states = optimizer.apply(main, w, g, 0.1, {.max_grad_norm = 1.0});
    states.for_each(
        [](const std::string& key, const Tensor& t) { EXPECT_EQ(t.dtype(), f32) << key; });
  }
  verify(ir);
}

// Runs forward, loss, backward and update of a small model until it has learnt its only batch.
TEST(Training, EndToEnd) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream images = ir.h2d_stream(f32_spec({4, 3}), "x");
  const H2dStream labels = ir.h2d_stream(i32_spec({4}), "labels");
  const Tensor x = main.host_load(images);
  const Tensor y = main.host_load(labels);
  const auto [factories, forward] = create_graph(ir, Sequential(Linear(8), Gelu(), Linear(2)), x);
  const GraphWithNamedArgs backward =
      autodiff(forward, {.grads_required = forward.args().values_flat()});
  const NamedTensors variables = factories.init(main, {.seed = 3});
  const CallSiteInfo fwd = forward.bind(variables).call_with_info(x);
  const auto [loss, dy] = ops::cross_entropy_with_grad(fwd.output(0), y);
  const D2hStream losses = main.host_store(loss, "loss");
  const auto& info = backward.grad_graph_info();
  const CallSiteInfo bwd = backward.call_with_info(dy, info.inputs_dict(fwd));
  Optimizer::adam().apply(main, variables, info.fwd_parent_ins_to_grad_parent_outs(fwd, bwd), 0.1);
  verify(ir);

  Interpreter interpreter(ir);
  std::vector<float> curve;
  for (int step = 0; step < 30; ++step) {
    const auto results = interpreter.run(
        {{images, HostTensor::of<float>({4, 3}, f32, {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1})},
         {labels, HostTensor::of<int32_t>({4}, i32, {0, 1, 1, 0})}});
    curve.push_back(results[losses].as<float>()[0]);
  }
  EXPECT_NEAR(curve.front(), std::log(2.0f), 0.01f);
  EXPECT_LT(curve.back(), 0.05f);
}

}  // namespace
}  // namespace sluice::nn
