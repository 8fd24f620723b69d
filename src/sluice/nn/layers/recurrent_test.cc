#include "sluice/nn/sequences.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/interp/interpreter.h"
#include "sluice/nn/autodiff.h"

namespace sluice::nn {
namespace {

using Keys = std::vector<std::string>;

// tests/models/recurrent_test.cc compares values and gradients with PyTorch.
TEST(Recurrent, HasTheVariablesOfPyTorchsLayers) {
  Ir ir;
  const auto [f1, lstm] = create_graph(ir, LSTM({.hidden = 4, .layers = 2}), f32_spec({5, 2, 3}));
  EXPECT_EQ(f1.keys_flat(), (Keys{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
                                  "weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1"}));
  EXPECT_EQ(f1["weight_ih_l0"].spec().shape, (Shape{16, 3}));
  EXPECT_EQ(f1["weight_ih_l1"].spec().shape, (Shape{16, 4}));
  EXPECT_EQ(f1["weight_hh_l1"].spec().shape, (Shape{16, 4}));
  EXPECT_EQ(f1["bias_hh_l1"].spec().shape, (Shape{16}));
  EXPECT_EQ(lstm.graph().outputs()[0].shape(), (Shape{5, 2, 4}));
  EXPECT_EQ(lstm.graph().outputs()[2].shape(), (Shape{2, 2, 4}));
  const auto [f2, gru] = create_graph(
      ir, GRU({.hidden = 4, .bidirectional = true, .batch_first = true, .bias = false}),
      TensorSpec{{2, 5, 3}, f16, {}});
  EXPECT_EQ(f2.keys_flat(),
            (Keys{"weight_ih_l0", "weight_hh_l0", "weight_ih_l0_reverse", "weight_hh_l0_reverse"}));
  EXPECT_EQ(f2["weight_ih_l0_reverse"].spec().shape, (Shape{12, 3}));
  EXPECT_EQ(f2["weight_ih_l0_reverse"].spec().dtype, f16);
  EXPECT_EQ(gru.graph().outputs()[0].shape(), (Shape{2, 5, 8}));
  EXPECT_EQ(gru.graph().outputs()[1].shape(), (Shape{2, 2, 4}));
}

TEST(Recurrent, FirstValuesAreUniform) {
  Ir ir;
  Graph& main = ir.main_graph();
  const auto factories = create_graph(ir, LSTM({.hidden = 16}), f32_spec({1, 1, 64})).first;
  const NamedTensors variables = factories.init(main, {.seed = 3});
  Interpreter interpreter(ir);
  for (const std::string& key : factories.keys_flat()) {
    double least = 1, most = -1;
    for (const double v : interpreter.read(variables[key]).to_doubles()) {
      least = std::min(least, v);
      most = std::max(most, v);
    }
    EXPECT_GE(least, -0.25);
    EXPECT_LE(most, 0.25);
    EXPECT_LT(least, -0.2);
    EXPECT_GT(most, 0.2);
  }
}

// The number of ops does not depend on the number of steps.
TEST(Recurrent, GraphsDoNotGrowWithTheSteps) {
  const auto ops = [](int64_t steps) {
    Ir ir;
    const auto graph = create_graph(ir, LSTM({.hidden = 4}), f32_spec({steps, 2, 3})).second;
    autodiff(graph);
    size_t count = 0;
    for (const GraphId id : ir.graph_ids()) count += ir.graph(id).ops().size();
    return count;
  };
  EXPECT_EQ(ops(2), ops(500));
}

TEST(Recurrent, Refusals) {
  Ir ir;
  const auto build = [&](const TensorSpec& x, const TensorSpec& h) {
    return [&ir, x, h] { create_graph(ir, GRU({.hidden = 4}), x, h); };
  };
  expect_refused({
      {"hidden", [] { LSTM({.hidden = 0}); }, "LSTM: hidden must be at least 1, got 0"},
      {"layers", [] { GRU({.hidden = 2, .layers = 0}); }, "GRU: layers must be at least 1, got 0"},
      {"axes", build(f32_spec({5, 3}), f32_spec({1, 2, 4})), "GRU: input must have three axes"},
      {"steps", build(f32_spec({0, 2, 3}), f32_spec({1, 2, 4})),
       "GRU: input must have at least one step"},
      {"state", build(f32_spec({5, 2, 3}), f32_spec({2, 2, 4})),
       "GRU: a first state must be (1, 2, 4) float32, got"},
  });
}

}  // namespace
}  // namespace sluice::nn
