#include <gtest/gtest.h>

#include <cmath>

#include "sluice/base/test_refusals.h"
#include "sluice/interp/interpreter.h"
#include "sluice/nn/layers.h"

namespace sluice::nn {
namespace {

using Keys = std::vector<std::string>;

Shape shape_of(const NamedVariableFactories& factories, const std::string& key) {
  return factories[key].spec().shape;
}

TEST(Convolutions, HaveTheVariablesOfPyTorchsLayers) {
  Ir ir;
  const auto [f1, line] =
      create_graph(ir, Conv1d({.channels = 6, .kernel = {3}, .groups = 2}), f32_spec({2, 4, 9}));
  EXPECT_EQ(f1.keys_flat(), (Keys{"weight", "bias"}));
  EXPECT_EQ(shape_of(f1, "weight"), (Shape{6, 2, 3}));
  EXPECT_EQ(shape_of(f1, "bias"), (Shape{6}));
  EXPECT_EQ(line.graph().outputs()[0].shape(), (Shape{2, 6, 7}));
  const auto [f2, plane] = create_graph(
      ir,
      Conv2d({.channels = 5, .kernel = {3, 5}, .stride = {2}, .padding = {1}, .bias = Bias::kNone}),
      f32_spec({2, 3, 9, 9}));
  EXPECT_EQ(f2.keys_flat(), Keys{"weight"});
  EXPECT_EQ(shape_of(f2, "weight"), (Shape{5, 3, 3, 5}));
  EXPECT_EQ(plane.graph().outputs()[0].shape(), (Shape{2, 5, 5, 4}));
  const auto [f3, space] =
      create_graph(ir, Conv3d({.channels = 2, .kernel = {2}, .padding = {0, 0, 0, 1, 1, 1}}),
                   TensorSpec{{1, 3, 4, 4, 4}, f16, {}});
  EXPECT_EQ(shape_of(f3, "weight"), (Shape{2, 3, 2, 2, 2}));
  EXPECT_EQ(f3["bias"].spec().dtype, f16);
  EXPECT_EQ(space.graph().outputs()[0].shape(), (Shape{1, 2, 4, 4, 4}));
  const auto [f4, same] =
      create_graph(ir, Conv2d({.channels = 1, .kernel = {4}, .pad_type = ops::PadType::kSameUpper}),
                   f32_spec({1, 1, 7, 7}));
  EXPECT_EQ(same.graph().outputs()[0].shape(), (Shape{1, 1, 7, 7}));
}

TEST(Convolutions, TransposedOnesHaveTheVariablesOfPyTorchsLayers) {
  Ir ir;
  const auto [factories, graph] = create_graph(ir,
                                               ConvTranspose2d({.channels = 6,
                                                                .kernel = {3},
                                                                .stride = {2},
                                                                .padding = {1},
                                                                .output_padding = {1},
                                                                .groups = 2}),
                                               f32_spec({2, 4, 5, 5}));
  EXPECT_EQ(shape_of(factories, "weight"), (Shape{4, 3, 3, 3}));
  EXPECT_EQ(shape_of(factories, "bias"), (Shape{6}));
  EXPECT_EQ(graph.graph().outputs()[0].shape(), (Shape{2, 6, 10, 10}));
  const auto [f1, line] =
      create_graph(ir, ConvTranspose1d({.channels = 1, .kernel = {2}}), f32_spec({1, 1, 3}));
  EXPECT_EQ(line.graph().outputs()[0].shape(), (Shape{1, 1, 4}));
  const auto [f3, space] =
      create_graph(ir, ConvTranspose3d({.channels = 1, .kernel = {2}}), f32_spec({1, 1, 3, 3, 3}));
  EXPECT_EQ(space.graph().outputs()[0].shape(), (Shape{1, 1, 4, 4, 4}));
}

// Returns the largest absolute first value of a variable.
double largest(const NamedTensors& variables, const std::string& key) {
  const Tensor& v = variables[key];
  double max = 0;
  for (const double x : v.graph().info(v).variable->initializer.evaluate(v.spec()).to_doubles())
    max = std::max(max, std::abs(x));
  return max;
}

TEST(Convolutions, FirstValuesAreUniformByTheFan) {
  Ir ir;
  const auto [f2, plane] = create_graph(ir, Conv2d({.channels = 200, .kernel = {5}, .groups = 2}),
                                        f32_spec({1, 8, 5, 5}));
  const NamedTensors conv = f2.init(ir.main_graph(), {.prefix = "conv"});
  const double bound = 1 / std::sqrt(4.0 * 25);
  for (const char* key : {"weight", "bias"}) {
    EXPECT_LE(largest(conv, key), bound) << key;
    EXPECT_GT(largest(conv, key), 0.97 * bound) << key;
  }
  // PyTorch takes the second axis of the weight, here the channels of the result.
  const auto [ft, transposed] =
      create_graph(ir, ConvTranspose2d({.channels = 100, .kernel = {2}}), f32_spec({1, 9, 5, 5}));
  const NamedTensors up = ft.init(ir.main_graph(), {.prefix = "up"});
  for (const char* key : {"weight", "bias"}) {
    EXPECT_LE(largest(up, key), 0.05) << key;
    EXPECT_GT(largest(up, key), 0.95 * 0.05) << key;
  }
}

// The bias belongs to the channels, not to the last axis.
TEST(Convolutions, AddTheBiasOfEachChannel) {
  Ir ir;
  const auto [factories, graph] =
      create_graph(ir, Conv2d({.channels = 2, .kernel = {1}}), f32_spec({1, 1, 2, 2}));
  const auto y = Interpreter(ir).evaluate(graph.graph(),
                                          {HostTensor::of<float>({1, 1, 2, 2}, f32, {1, 2, 3, 4}),
                                           HostTensor::of<float>({2, 1, 1, 1}, f32, {1, 10}),
                                           HostTensor::of<float>({2}, f32, {0.5, 0.25})});
  EXPECT_EQ(y[0].to_doubles(),
            (std::vector<double>{1.5, 2.5, 3.5, 4.5, 10.25, 20.25, 30.25, 40.25}));
}

TEST(Convolutions, RefuseBadOptionsAndInputs) {
  Ir ir;
  const auto conv = [&](const ConvOptions& o, Shape x) {
    return [&ir, o, x] { create_graph(ir, Conv2d(o), f32_spec(x)); };
  };
  const auto transposed = [&](const ConvTransposeOptions& o, Shape x) {
    return [&ir, o, x] { create_graph(ir, ConvTranspose2d(o), f32_spec(x)); };
  };
  const Shape x{2, 4, 8, 8};
  expect_refused({
      {"no channels", conv({.kernel = {3}}, x), "Conv2d: channels must be at least 1, got 0"},
      {"no kernel", conv({.channels = 2}, x),
       "Conv2d: kernel must have a number of taps, got none"},
      {"three strides", conv({.channels = 2, .kernel = {3}, .stride = {1, 1, 1}}, x),
       "Conv2d: stride must have one number for all 2 spatial axes or one for each, got 3"},
      {"three paddings", conv({.channels = 2, .kernel = {3}, .padding = {1, 1, 1}}, x),
       "Conv2d: padding must have one number for all 2 spatial axes or one for each, or for each "
       "start and each end, got 3"},
      {"no batch", conv({.channels = 2, .kernel = {3}}, {4, 8, 8}),
       "Conv2d: x must have a batch, channels and 2 spatial axes, got 'x' (4, 8, 8) float32"},
      {"large kernel", conv({.channels = 2, .kernel = {11}, .padding = {1}}, x),
       "conv (C7): the kernel covers 11 elements of axis 2 and must fit into its 10 elements"},
      {"groups of the input", conv({.channels = 6, .kernel = {3}, .groups = 3}, x),
       "conv (C5): groups must divide the 4 channels of x, got 3"},
      {"groups of the result", conv({.channels = 3, .kernel = {3}, .groups = 2}, x),
       "conv (C5): groups must divide the 3 output channels of w, got 2"},
      {"no groups", conv({.channels = 2, .kernel = {3}, .groups = 0}, x),
       "conv (C5): groups must be at least 1, got 0"},
      {"negative padding", conv({.channels = 2, .kernel = {3}, .padding = {-1}}, x),
       "conv (C3): padding must be at least 0, got -1"},
      {"groups of a transposed one", transposed({.channels = 3, .kernel = {3}, .groups = 2}, x),
       "ConvTranspose2d: groups must divide the 3 channels of the result, got 2"},
      {"large output padding",
       transposed({.channels = 2, .kernel = {3}, .stride = {2}, .output_padding = {2}}, x),
       "conv_transpose (C4): output_padding must be less than the stride or the dilation, got 2"},
  });
}

}  // namespace
}  // namespace sluice::nn
