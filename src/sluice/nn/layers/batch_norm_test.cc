#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "sluice/interp/interpreter.h"
#include "sluice/ir/verify.h"
#include "sluice/nn/autodiff.h"
#include "sluice/nn/layers.h"
#include "sluice/nn/test_util.h"

namespace sluice::nn {
namespace {

constexpr int64_t kBatch = 2, kChannels = 3, kSize = 4;
constexpr int kSteps = 3;
constexpr double kMomentum = 0.25, kEpsilon = 1e-5;

const TensorSpec kNormImages = f32_spec({kBatch, kChannels, 2, 2});

HostTensor images(int step) {
  HostTensor x(kNormImages);
  float next = static_cast<float>(step);
  for (float& v : x.as<float>()) v = 2 * std::sin(next += 1.25f) + 0.5f;
  return x;
}

// Mean and unbiased variance of each channel, as PyTorch's layer averages them.
std::array<std::array<double, 2>, kChannels> statistics(const HostTensor& x) {
  std::array<std::array<double, 2>, kChannels> result{};
  constexpr auto kValues = static_cast<double>(kBatch * kSize);
  for (size_t c = 0; c < kChannels; ++c) {
    const auto each = [&](auto&& use) {
      for (size_t n = 0; n < kBatch; ++n) {
        for (size_t i = 0; i < kSize; ++i)
          use(static_cast<double>(x.as<float>()[(n * kChannels + c) * kSize + i]));
      }
    };
    double sum = 0, squares = 0;
    each([&](double v) { sum += v; });
    const double mean = sum / kValues;
    each([&](double v) { squares += (v - mean) * (v - mean); });
    result[c] = {mean, squares / (kValues - 1)};
  }
  return result;
}

// A program that trains on a batch (main) and evaluates one (eval).
struct Program {
  Program() {
    const auto [factories, graph] =
        create_graph(ir, BatchNorm2d({.momentum = kMomentum}), kNormImages);
    const auto [same, eval] = create_eval_graph(ir, BatchNorm2d(), kNormImages);
    EXPECT_EQ(factories.keys_flat(), same.keys_flat());
    in = ir.h2d_stream(kNormImages, "x");
    out = ir.d2h_stream(kNormImages, "y");
    Graph& main = ir.main_graph();
    variables = factories.init(main);
    main.host_store(out, graph.bind(variables).call(main.host_load(in))[0]);
    Graph& evaluation = ir.entry_graph("eval");
    NamedTensors shared;
    variables.for_each([&](const std::string& key, const Tensor& t) {
      shared.merge(key, ir.share_variable(t, evaluation));
    });
    evaluation.host_store(out, eval.bind(shared).call(evaluation.host_load(in))[0]);
    verify(ir);
  }
  Ir ir;
  H2dStream in;
  D2hStream out;
  NamedTensors variables;
};

TEST(BatchNorm, UpdatesItsStatisticsAsPyTorchDoes) {
  const Program p;
  Interpreter run(p.ir, Precision::kFloat);
  std::array<std::array<double, 2>, kChannels> running{};
  for (auto& r : running) r = {0, 1};
  for (int step = 0; step < kSteps; ++step) {
    const HostTensor x = images(step);
    const HostTensor y = run.run({{p.in, x}}, "main").entries(p.out)[0];
    const auto now = statistics(x);
    constexpr double kUnbiased = kBatch * kSize / (kBatch * kSize - 1.0);
    for (size_t i = 0; i < static_cast<size_t>(x.elements()); ++i) {
      const auto& [mean, variance] = now[i / kSize % kChannels];
      EXPECT_NEAR(static_cast<double>(y.as<float>()[i]),
                  (static_cast<double>(x.as<float>()[i]) - mean) /
                      std::sqrt(variance / kUnbiased + kEpsilon),
                  1e-5);
    }
    for (size_t c = 0; c < kChannels; ++c) {
      for (size_t k = 0; k < 2; ++k)
        running[c][k] = (1 - kMomentum) * running[c][k] + kMomentum * now[c][k];
    }
  }
  for (size_t c = 0; c < kChannels; ++c) {
    for (const auto& [key, k] : {std::pair("running_mean", 0u), std::pair("running_var", 1u)}) {
      const HostTensor value = run.read(p.variables[key]);
      EXPECT_NEAR(static_cast<double>(value.as<float>()[c]), running[c][k], 1e-6) << key;
    }
  }
  const HostTensor x = images(7);
  const HostTensor y = run.run({{p.in, x}}, "eval").entries(p.out)[0];
  for (size_t i = 0; i < static_cast<size_t>(x.elements()); ++i) {
    const auto& [mean, variance] = running[i / kSize % kChannels];
    EXPECT_NEAR(static_cast<double>(y.as<float>()[i]),
                (static_cast<double>(x.as<float>()[i]) - mean) / std::sqrt(variance + kEpsilon),
                1e-5);
  }
}

TEST(BatchNorm, HasVariablesOfItsInputsDtype) {
  Ir ir;
  const auto [factories, graph] = create_graph(ir, BatchNorm(), TensorSpec{{4, 5}, bf16, {}});
  EXPECT_EQ(factories.keys_flat(),
            (std::vector<std::string>{"weight", "bias", "running_mean", "running_var"}));
  factories.for_each([](const std::string& key, const VariableFactory& factory) {
    EXPECT_EQ(factory.spec(), (TensorSpec{{5}, bf16, {}})) << key;
  });
  EXPECT_EQ(factories.select(graph.args(), Role::kRunning).keys_flat(),
            (std::vector<std::string>{"running_mean", "running_var"}));
}

// Its gradient does not read the running variables, and no weight of the layer is one of them.
TEST(BatchNorm, HasGradientsOfItsWeights) {
  Ir ir;
  const auto [factories, graph] = create_graph(ir, BatchNorm2d(), kNormImages);
  const NamedTensors weights = factories.select(graph.args(), Role::kWeight);
  EXPECT_EQ(weights.keys_flat(), (std::vector<std::string>{"weight", "bias"}));
  Tensors wanted = weights.tensors();
  wanted.push_back(graph.graph().inputs()[0]);
  const auto gradient = graph.autodiff({.grads_required = wanted});
  verify(ir);
  for (const Tensor& t : gradient.grad_graph_info().inputs())
    EXPECT_EQ(t.name().find("running"), std::string::npos) << t.name();
}

// A graph that updates running variables must not run twice.
TEST(BatchNorm, ItsGraphIsNotRecomputed) {
  Ir ir;
  const auto [factories, graph] = create_graph(ir, BatchNorm2d(), kNormImages);
  const auto gradient =
      graph.autodiff({.grads_required = factories.select(graph.args(), Role::kWeight).tensors()});
  const std::string error = usage_error([&, g = gradient] { recompute_graph(g); });
  EXPECT_NE(error.find("it writes its input 'running_mean'"), std::string::npos) << error;
}

TEST(BatchNorm, Refusals) {
  Ir ir;
  const auto error = [&](const auto& module, const TensorSpec& spec) {
    return usage_error([&] { create_graph(ir, module, spec); });
  };
  EXPECT_NE(error(BatchNorm(), f32_spec({3})).find("x must have axes (batch, channels, spatial"),
            std::string::npos);
  EXPECT_NE(error(BatchNorm2d(), f32_spec({3, 2})).find("(batch, channels, height, width)"),
            std::string::npos);
  EXPECT_NE(error(BatchNorm(), f32_spec({1, 3})).find("more than one value per channel"),
            std::string::npos);
  create_eval_graph(ir, BatchNorm(), f32_spec({1, 3}));
  EXPECT_NE(usage_error([] { BatchNorm({.momentum = 1.5}); }).find("momentum must be in [0, 1]"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::nn
