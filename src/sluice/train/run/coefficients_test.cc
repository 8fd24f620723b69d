// Coefficients of optimizers that programs read from streams (nn::streamed).
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/activations.h"
#include "sluice/train/fit.h"
#include "sluice/train/step_arrays.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

using nn::streamed;
using Values = std::vector<double>;

// Two blocks with weights of several shapes.
struct CoefficientNet : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const { return out(b, ops::gelu(hidden(b, x))); }
  nn::Child<nn::Linear> hidden{*this, "hidden", 8};
  nn::Child<nn::Linear> out{*this, "out", test::kClasses};
};

Network coefficient_network() {
  return classifier(CoefficientNet(), f32_spec({test::kMicroBatch, test::kFeatures}));
}

Options with_two_devices(Options options) {
  options.session = {.device = cpu_device({.threads = 1}),
                     .more_devices = {cpu_device({.threads = 1})}};
  return options;
}

// An optimizer whose coefficients are constants or streamed.
using Make = std::function<nn::Coefficient(double value)>;
nn::Coefficient constant(double value) { return value; }

struct NamedOptimizer {
  std::string name;
  size_t coefficients;
  /// `first` is a value of the first coefficient.
  std::function<nn::Optimizer(const Make& c, double first)> make;
};

const std::vector<NamedOptimizer>& optimizers_of_test() {
  using nn::Optimizer;
  static const std::vector<NamedOptimizer> all = {
      {"sgd", 1,
       [](const Make& c, double first) { return Optimizer::sgd({.weight_decay = c(first)}); }},
      {"momentum", 3,
       [](const Make& c, double first) {
         return Optimizer::sgd(
             {.momentum = c(first), .weight_decay = c(0.125), .dampening = c(0.25)});
       }},
      {"adamw", 4,
       [](const Make& c, double first) {
         return Optimizer::adamw({.beta1 = c(first),
                                  .beta2 = c(0.9375),
                                  .epsilon = c(0.0009765625),
                                  .weight_decay = c(0.125)});
       }},
      {"lamb", 2,
       [](const Make& c, double first) {
         return Optimizer::lamb({.beta2 = c(first), .weight_decay = c(0.125)});
       }},
      {"rmsprop", 3,
       [](const Make& c, double first) {
         return Optimizer::rmsprop(
             {.alpha = c(first), .weight_decay = c(0.125), .momentum = c(0.5)});
       }},
      {"groups", 2, [](const Make& c, double first) {
         return Optimizer::grouped(
             {{nn::keys_like({"*.weight"}),
               Optimizer::adamw({.beta1 = 0.5, .weight_decay = c(first)})},
              {nn::keys_like({"*.bias"}), Optimizer::sgd({.momentum = c(0.75)}), 0.5}});
       }}};
  return all;
}

// Returns the weights after 12 updates with the optimizer that `make(u)` returns for update u, in
// calls of several updates.
std::vector<Values> trained(Options options, const std::function<nn::Optimizer(int64_t)>& make) {
  options.accumulate = 2;
  options.learning_rate = 0.0625;
  options.seed = 3;
  TrainingModel model =
      training_model(coefficient_network(), with_two_devices(std::move(options)), make(0));
  const int64_t updates = model.options().device_iterations, n = model.call_size().samples();
  for (int64_t u = 0; u < 12; u += updates) {
    model.set_optimizer(make(u), 0.0625);
    model(test::samples(n, u / updates * n));
  }
  std::vector<Values> weights;
  for (const char* path : {"hidden.weight", "hidden.bias", "out.weight", "out.bias"})
    weights.push_back(model.weight(path).to_doubles());
  return weights;
}

std::vector<Options> strategies_of_test() {
  const TensorLocations remote = TensorLocations::phased();
  TensorLocations sharded_state;
  sharded_state.min_elements_sharded = 2;
  return {{.strategy = phased(), .locations = remote},
          {.strategy = phased(), .locations = remote, .max_grad_norm = 1000},
          {.strategy = PhasedExecution{.stages = Stages(2)}, .locations = remote},
          {.strategy = sharded("hidden", "out")},
          {.strategy = pipelined("hidden", "out")},
          {.strategy = PipelinedExecution{.schedule = Schedule::kSequential}},
          {.strategy = resident(), .locations = sharded_state}};
}

// All coefficients are sums of few powers of two, so that float32 holds them.
TEST(Coefficients, StreamedOnesHaveTheBitsOfConstants) {
  for (const NamedOptimizer& o : optimizers_of_test()) {
    const auto run = [&](const Make& c) {
      return trained({.strategy = resident()}, [&](int64_t) { return o.make(c, 0.75); });
    };
    EXPECT_EQ(run(streamed), run(constant)) << o.name;
    EXPECT_EQ(o.make(streamed, 0.75).streamed().size(), o.coefficients) << o.name;
  }
}

// The first coefficient changes every 6 updates.
TEST(Coefficients, ChangeBetweenCallsInEveryStrategy) {
  for (const NamedOptimizer& o : optimizers_of_test()) {
    const auto make = [&](int64_t u) { return o.make(streamed, u < 6 ? 0.75 : 0.25); };
    const auto expected = trained({.strategy = resident()}, make);
    EXPECT_NE(trained({}, [&](int64_t) { return make(0); }), expected) << o.name;
    for (Options options : strategies_of_test()) {
      for (const int64_t updates : {1, 3}) {
        options.device_iterations = updates;
        for (const int replicas : {1, 2}) {
          Options one{.strategy = resident(), .replicas = replicas};
          options.replicas = replicas;
          // Two replicas read other samples than one.
          const auto want = replicas == 1 ? expected : trained(one, make);
          if (options.max_grad_norm) {
            one.max_grad_norm = options.max_grad_norm;
            EXPECT_EQ(trained(options, make), trained(one, make)) << o.name;
          } else {
            EXPECT_EQ(trained(options, make), want)
                << o.name << " " << options.strategy->index() << " " << updates << " " << replicas;
          }
        }
      }
    }
  }
}

TEST(Coefficients, ChangeWithoutCompiling) {
  TrainingModel model = training_model(coefficient_network(), with_two_devices({}),
                                       nn::Optimizer::adamw({.weight_decay = streamed(0.5)}));
  model(test::samples(2));
  const Session* const session = &model.session();
  // At so small a rate, the decay of this weight is above the rest of the update.
  const Values before = model.weight("out.weight").to_doubles();
  model.set_optimizer(nn::Optimizer::adamw({.weight_decay = streamed(1e9)}), 1e-9);
  model(test::samples(2));
  const Values after = model.weight("out.weight").to_doubles();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], 0, 1e-6) << before[i];
  EXPECT_EQ(&model.session(), session);
  ASSERT_EQ(model.programs().coefficients.size(), 1u);
  EXPECT_EQ(model.programs().coefficients[0].coefficient.name, "weight_decay");
  EXPECT_EQ(model.programs().coefficients[0].coefficient.value, 0.5);
}

// Each update of a call has its own momentum.
TEST(Coefficients, FollowAFunctionOfTheUpdate) {
  const OptimizerFunction optimizer = [](int64_t update) {
    const double momentum = 0.125 * static_cast<double>(update % 8);
    return nn::Optimizer::sgd({.momentum = streamed(momentum)});
  };
  const auto fitted = [&](const Strategy& strategy, int64_t updates) {
    TrainingModel model = training_model(coefficient_network(),
                                         with_two_devices({.strategy = strategy,
                                                           .device_iterations = updates,
                                                           .learning_rate = 0.0625,
                                                           .seed = 3}),
                                         optimizer(0));
    DataLoader data(model.options(), test::dataset(24), {.batch_size = test::kMicroBatch});
    fit(model, data, {.optimizer = optimizer});
    EXPECT_EQ(model.updates(), 12);
    return model.weight("hidden.weight").to_doubles();
  };
  TrainingModel by_hand = training_model(
      coefficient_network(), with_two_devices({.learning_rate = 0.0625, .seed = 3}), optimizer(0));
  DataLoader data(by_hand.options(), test::dataset(24), {.batch_size = test::kMicroBatch});
  for (int64_t u = 0; u < 12; ++u) {
    by_hand.set_optimizer(optimizer(u), 0.0625);
    fit(by_hand, data, {.calls = 1});
  }
  const Values expected = by_hand.weight("hidden.weight").to_doubles();
  for (const Strategy& strategy : {Strategy(resident()), Strategy(pipelined("hidden", "out"))}) {
    for (const int64_t updates : {1, 4}) EXPECT_EQ(fitted(strategy, updates), expected) << updates;
  }
  const FitOptions other{.optimizer = [](int64_t) { return nn::Optimizer::adam(); }};
  expect_refused({{"another rule", [&] { fit(by_hand, data, other); },
                   "fit: optimizer: the update rules must be those of the model"}});
}

TEST(Coefficients, ArraysOfAStepHaveTheirValues) {
  Ir ir(2);
  const Training t =
      build_training(ir, coefficient_network(),
                     nn::Optimizer::sgd({.momentum = streamed(0.5), .weight_decay = streamed(2)}),
                     {.device_iterations = 3});
  const StepArrays arrays(t);
  ASSERT_EQ(arrays.coefficients.size(), 2u);
  EXPECT_EQ(arrays.coefficients[0].to_doubles(), Values(6, 0.5));
  EXPECT_EQ(arrays.coefficients[1].to_doubles(), Values(6, 2));
}

TEST(Coefficients, ConstantsKeepTheirValue) {
  using nn::Optimizer;
  TrainingModel model = training_model(
      coefficient_network(), with_two_devices({}),
      Optimizer::adamw({.beta1 = 0.5, .epsilon = 0.25, .weight_decay = streamed(0.125)}));
  const auto refused = [&](const char* what, const Optimizer& other, const char* found) {
    return Refusal{what, [&model, other] { model.set_optimizer(other, 0.1); }, found};
  };
  const std::string range = "optimizer: weight_decay must be finite and at least 0, got -1";
  expect_refused({
      refused("another constant",
              Optimizer::adamw({.beta1 = 0.75, .epsilon = 0.25, .weight_decay = streamed(0.125)}),
              "must be those of the model, adam(beta1 0.5, beta2 0.999, epsilon 0.25, "
              "weight_decay streamed,"),
      refused("another constant",
              Optimizer::adamw({.beta1 = 0.75, .epsilon = 0.25, .weight_decay = streamed(0.125)}),
              "got adam(beta1 0.75, "),
      refused("a constant instead",
              Optimizer::adamw({.beta1 = 0.5, .epsilon = 0.25, .weight_decay = 0.125}),
              "; only the learning rate and coefficients of nn::streamed() may change"),
      refused("a stream instead",
              Optimizer::adamw(
                  {.beta1 = streamed(0.5), .epsilon = 0.25, .weight_decay = streamed(0.125)}),
              "got adam(beta1 streamed, "),
      {"a value", [] { Optimizer::adamw({.weight_decay = streamed(-1)}); }, range},
      {"a beta", [] { Optimizer::adamw({.beta1 = streamed(1)}); }, "beta1 must be in [0, 1)"},
  });
  // A program without build_training() has no streams.
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor w = main.variable(HostTensor::of<float>({1}, f32, {1}), "w");
  const nn::NamedTensors all = nn::NamedTensors::from_dict({{"w", w}});
  expect_refused(
      {{"apply", [&] { Optimizer::sgd({.momentum = streamed(0.5)}).apply(main, all, all, 0.1); },
        "optimizer: momentum is streamed, which requires a training program; pass a "
        "tensor of a stream instead"}});
}

}  // namespace
}  // namespace sluice::train
