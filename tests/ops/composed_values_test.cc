// Tests bit operators, cumulative products, counts, resampling and boxes of images against values
// of PyTorch, torchvision and numpy, and their refusals.
#include "edge_values.h"

namespace sluice::test {
namespace {

template <typename F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    return e.what();
  }
  return "no error";
}

TEST(Bitwise, HasTheValuesOfNumpy) {
  const HostTensor a = array(i32, {5, -7, 1, -1, 12}), b = array(i32, {1, 2, 31, 32, -1});
  expect({a, b},
         {{1, 0, 1, 32, 12},
          {5, -5, 31, -1, -1},
          {4, -5, 30, -33, -13},
          {-6, 6, -2, 0, -13},
          {10, -28, -2147483648.0, 0, 0},
          {2, -2, 0, -1, 0}},
         [](const Tensors& x) {
           return Tensors{ops::bitwise_and(x[0], x[1]), ops::bitwise_or(x[0], x[1]),
                          ops::bitwise_xor(x[0], x[1]), ops::bitwise_not(x[0]),
                          ops::shift_left(x[0], x[1]),  ops::shift_right(x[0], x[1])};
         });
  expect({array(u8, {255, 3}), array(u8, {1, 8})}, {{254, 0}, {127, 0}}, [](const Tensors& x) {
    return Tensors{ops::shift_left(x[0], x[1]), ops::shift_right(x[0], x[1])};
  });
}

TEST(Cumprod, HasTheGradientOfPyTorchAtZeros) {
  const HostTensor x = HostTensor::of<float>({2, 4}, f32, {1.5, -2, 0, 3, 2, 0.5, -1, 0});
  const HostTensor g = HostTensor::of<float>({2, 4}, f32, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto f = [](const Tensors& t) { return ops::cumprod(t[0], {.axis = 1}) * t[1]; };
  expect({x, g}, {{1.5, -3, 0, 0, 2, 1, -1, 0}, {-3, 3, -45, 0, 4.5, -2, 7, -8}},
         [&](const Tensors& t) {
           return Tensors{ops::cumprod(t[0], {.axis = 1}), gradients(t, f)[0]};
         });
}

TEST(Counts, OfIndicesAndOfParts) {
  expect({array(i32, {0, 2, 2, 5, 2, -1, 9})}, {{1, 0, 3, 0, 0, 1}},
         [](const Tensors& x) { return Tensors{ops::bincount(x[0], 6)}; });
  expect({array(f32, {0, 0.125, 0.25, 0.5, 0.99, 1, 1.5, -0.125, kNan})}, {{2, 1, 1, 2}},
         [](const Tensors& x) { return Tensors{ops::histogram(x[0], 4, 0, 1)}; });
}

TEST(Roll, MovesElementsAlongAxesOrAll) {
  const HostTensor x = HostTensor::of<float>({2, 3}, f32, {0, 1, 2, 3, 4, 5});
  expect({x}, {{5, 3, 4, 2, 0, 1}, {4, 5, 0, 1, 2, 3}}, [](const Tensors& t) {
    return Tensors{ops::roll(t[0], {1, -2}, {0, 1}), ops::roll(t[0], {2})};
  });
}

TEST(AdaptivePools, HaveWindowsOfSeveralSizes) {
  const HostTensor x = HostTensor::of<float>({1, 1, 4}, f32, {1, 5, 2, 4});
  expect({x}, {{5, 5, 4}, {3, 3.5, 3}}, [](const Tensors& t) {
    return Tensors{ops::adaptive_max_pool(t[0], {3}), ops::adaptive_average_pool(t[0], {3})};
  });
}

TEST(Composed, HalvesAreComputedInFloat) {
  const HostTensor x = array(f16, {100, 100, -300, 300});
  expect({array(bf16, Doubles(1000, 1)), x}, {{1}, {100}, {300}}, [](const Tensors& t) {
    return Tensors{ops::adaptive_average_pool(t[0], {1}), ops::norm(ops::slice(t[1], {0}, {1}), 3),
                   ops::standard_deviation(ops::slice(t[1], {2}, {4}))};
  });
}

TEST(Composed, RootsOfZeroHaveNoGradient) {
  const auto deviation = [](const Tensors& t) { return ops::standard_deviation(t[0]); };
  const auto norm = [](const Tensors& t) { return ops::norm(t[0], 3); };
  expect({array(f32, {0, 0, 0})}, {{0}, {0}, {0, 0, 0}, {0, 0, 0}}, [&](const Tensors& t) {
    return Tensors{deviation(t), norm(t), gradients(t, deviation)[0], gradients(t, norm)[0]};
  });
}

TEST(Composed, VariancesHaveNoNegativeDivisor) {
  expect({array(f32, {}), array(f32, {1, 3})}, {{kNan}, {kNan}, {kInf}}, [](const Tensors& t) {
    return Tensors{ops::var(t[0], {}, 1), ops::standard_deviation(t[0]), ops::var(t[1], {}, 3)};
  });
}

TEST(GridSample, IsZeroWhereAPositionIsNoNumber) {
  const HostTensor image = HostTensor::of<float>({1, 1, 2, 2}, f32, {1, 2, 3, 4});
  const HostTensor grid =
      HostTensor::of<float>({1, 1, 2, 2}, f32, {0, 0, static_cast<float>(kNan), 0});
  expect({image, grid}, {{2.5, 0}},
         [](const Tensors& t) { return Tensors{ops::grid_sample(t[0], t[1])}; });
}

// Two images of 4 x 5 elements.
HostTensor two_images() {
  std::vector<float> values;
  for (int i = 0; i < 40; ++i) values.push_back(static_cast<float>(i * i % 17));
  return HostTensor::of<float>({2, 1, 4, 5}, f32, values);
}

// The values are those of torchvision 0.29. The gradient is that of Σ i·y[i].
TEST(RoiAlign, HasTheValuesAndGradientsOfTorchvision) {
  const HostTensor boxes = HostTensor::of<float>(
      {3, 5}, f32, {0, 0.5f, 0.25f, 3.5f, 3, 1, -2, 1.5f, 2.25f, 6, 1, 1, 1, 1.25f, 1.5f});
  const std::tuple<ops::RoiAlignOptions, Doubles, Doubles> rows[] = {
      {{.size = {2, 2}},
       {5.2646484, 12.37793, 3.4638672, 9.0722656, 5.1666667, 6.9383681, 0, 0, 12.0625, 12.1875,
        9.1875, 7.5625},
       {0.012695312, 0.12695312, 0.19042969, 0.25390625, 0.025390625,
        0.043945312, 0.43945312, 0.64941406, 0.859375,   0.0859375,
        0.13183594,  1.3183594,  1.5673828,  1.8164062,  0.18164062,
        0.061523438, 0.61523438, 0.71777344, 0.8203125,  0.08203125,
        0,           0,          0,          0,          0,
        0.18229167,  9.8663194,  10.340278,  0,          0,
        1.8229167,   11.913194,  12.152778,  0,          0,
        2.3697917,   1.5121528,  1.1736111,  0,          0}},
      {{.size = {1, 3}, .spatial_scale = 0.5, .sampling_ratio = 2},
       {4.078125, 2.6396484, 6.6328125, 11.6875, 11.399251, 9.8326823, 12.875, 12.869792,
        12.833333},
       {0.16601562,  0.99609375, 0.43164062, 0, 0, 0.41015625, 2.4609375, 1.0664062, 0, 0,
        0.048828125, 0.29296875, 0.12695312, 0, 0, 0,          0,         0,         0, 0,
        0.33333333,  2.25,       0.41666667, 0, 0, 5.3605143,  15.295736, 2.5,       0, 0,
        4.6103516,   4.5354818,  0.41666667, 0, 0, 2.1385091,  1.1427409, 0,         0, 0}},
      {{.size = {2, 1}, .spatial_scale = 1.25, .sampling_ratio = 4, .aligned = true},
       {8.1041107, 5.8293533, 3.4458771, 0, 13.215664, 12.280273},
       {0.041358948, 0.10816956, 0.10816956,   0.10816956, 0.041358948,
        0.065063477, 0.17016602, 0.17016602,   0.17016602, 0.065063477,
        0.10781097,  0.28196716, 0.28196716,   0.28196716, 0.10781097,
        0.090454102, 0.23657227, 0.23657227,   0.23657227, 0.090454102,
        0.049610138, 0.44551849, 0.0029182434, 0,          0,
        0.9472847,   8.2284927,  0.086917877,  0,          0,
        0.29893112,  1.3636551,  0.16553879,   0,          0,
        0.30964279,  0.30608368, 0.29540634,   0,          0}},
      {{.size = {2, 2}, .aligned = true},
       {2.5429688, 8.9570312, 5.6162109, 10.276367, 3.4583333, 9.1053241, 0.11111111, 1.1157407,
        12.976562, 13.304688, 12.992188, 13.101562},
       {0.17578125, 0.421875,    0.73828125, 0.3515625,  0,          0.38574219, 0.89257812,
        1.2880859,  0.60546875,  0,          0.61523438, 1.3945312,  1.7636719,  0.8203125,
        0,          0.073242188, 0.16601562, 0.20996094, 0.09765625, 0,          3.71875,
        6.28125,    0,           0,          0,          12.800347,  20.631944,  0.16493056,
        0,          0,           1.9670139,  1.1840278,  0.36284722, 0,          0,
        3.375,      2.0092593,   0.61574074, 0,          0}},
  };
  for (const auto& [o, y, dx] : rows) {
    SCOPED_TRACE(to_string(to_attrs(o)));
    expect({two_images(), boxes}, {y, dx}, [&, &o = o](const Tensors& t) {
      const auto f = [&](const Tensors& own) {
        Graph& graph = own[0].graph();
        const Tensor y = ops::roi_align(own[0], graph.constant(boxes, "boxes"), o);
        std::vector<float> weights;
        for (int64_t i = 1; i <= y.elements(); ++i) weights.push_back(static_cast<float>(i));
        return y * graph.constant(HostTensor::of<float>(y.shape(), f32, weights), "w");
      };
      return Tensors{ops::roi_align(t[0], t[1], o), gradients({t[0]}, f)[0]};
    });
  }
}

// The gradient of Σ y² is linear in x, so its gradient in the direction of the images is its value.
TEST(RoiAlign, HasSecondDerivatives) {
  const HostTensor boxes = HostTensor::of<float>(
      {3, 5}, f32, {0, 0.5f, 0.25f, 3.5f, 3, 1, -2, 1.5f, 2.25f, 6, 1, 1, 1, 1.25f, 1.5f});
  const Doubles slope{
      0.13367271, 1.3367271,  2.2397804, 3.1428337,  0.31428337, 0.43863106, 4.3863106,  7.3586369,
      10.330963,  1.0330963,  0.376688,  3.76688,    6.6923904,  9.6179008,  0.96179008, 0.14207268,
      1.4207268,  2.5708866,  3.7210464, 0.37210464, 0,          0,          0,          0,
      0,          0.38741852, 22.800272, 22.427543,  0,          0,          3.8741852,  21.908974,
      20.119185,  0,          0,         5.0364408,  3.4972908,  2.7143153,  0,          0};
  expect({two_images()}, {slope, slope}, [&](const Tensors& t) {
    const auto squares = [&](const Tensors& own) {
      const Tensor at = own[0].graph().constant(boxes, "boxes");
      return ops::square(ops::roi_align(own[0], at, {.size = {2, 2}}));
    };
    const auto along_images = [&](const Tensors& own) {
      const Tensor images = own[0].graph().constant(two_images(), "images");
      return gradients(own, squares)[0] * images;
    };
    return Tensors{gradients(t, squares)[0], gradients(t, along_images)[0]};
  });
}

TEST(RoiAlign, OfBoxesOfNoSizeAndOfNoImage) {
  const auto boxes = [](const std::vector<float>& values) {
    return HostTensor::of<float>({static_cast<int64_t>(values.size() / 5), 5}, f32, values);
  };
  const auto nan = static_cast<float>(kNan);
  const HostTensor none =
      boxes({2, 0, 0, 2, 2, -1, 0, 0, 2, 2, nan, 0, 0, 2, 2, 0, nan, 0, 2, 2, 0, 0, 0, 2, 1e30f});
  expect({two_images(), boxes({0, 3, 3, 1, 1, 0, 9, 9, 12, 12}), boxes({0, 3, 3, 1, 1})},
         {{0, 0, 0, 0}, {1.75, 3.25}, {10.6875, 4.375}, Doubles(5, kNan), Doubles(40, 0)},
         [&](const Tensors& t) {
           const auto undefined = [&](const Tensors& own) {
             const Tensor at = own[0].graph().constant(none, "boxes");
             return ops::roi_align(own[0], at, {.size = {1, 1}});
           };
           const ops::RoiAlignOptions two{.size = {1, 2}, .sampling_ratio = 2};
           const ops::RoiAlignOptions aligned{.size = {1, 2}, .sampling_ratio = 2, .aligned = true};
           return Tensors{ops::roi_align(t[0], t[1], {.size = {1, 2}, .aligned = true}),
                          ops::roi_align(t[0], t[2], two), ops::roi_align(t[0], t[2], aligned),
                          undefined({t[0]}), gradients({t[0]}, undefined)[0]};
         });
}

TEST(Composed, Refusals) {
  Ir ir;
  Graph& main = ir.main_graph();
  const auto t = [&](const Shape& shape, DType dtype = f32) {
    return main.constant(HostTensor({shape, dtype, {}}), "t");
  };
  const Tensor x = t({2, 3, 4, 5});
  const std::pair<std::string, std::string> rows[] = {
      {refusal([&] { ops::interpolate(t({4}, i32), {2}); }),
       "interpolate: t must be float32, float16 or bfloat16, got (4,) int32"},
      {refusal([&] {
         ops::interpolate(t({4}), {2, 3});
       }),
       "interpolate: sizes must be for 1 to 1 axes of (4,), got 2"},
      {refusal([&] { ops::interpolate(x, {}); }),
       "interpolate: sizes must be for 1 to 4 axes of (2, 3, 4, 5), got 0"},
      {refusal([&] {
         ops::interpolate(x, {2, 0});
       }),
       "interpolate: size 1 must be at least 1, got 0"},
      {refusal([&] {
         ops::interpolate(t({2, 0}), {2});
       }),
       "interpolate: axis 1 must have 1 to 2^24 elements, got shape (2, 0)"},
      {refusal([&] {
         ops::interpolate(x, {2, 2}, {.scales = {1}});
       }),
       "interpolate: scales must be absent or one for each of 2 sizes, got 1"},
      {refusal([&] { ops::interpolate(x, {2}, {.scales = {0}}); }),
       "interpolate: a scale must be above 0 and a finite float32, got 0"},
      {refusal([&] { ops::adaptive_max_pool(x, {0}); }),
       "adaptive_max_pool: size 0 must be at least 1, got 0"},
      {refusal([&] {
         ops::adaptive_average_pool(t({3, 0}), {1});
       }),
       "adaptive_average_pool: axis 1 must have 1 to 2^24 elements, got shape (3, 0)"},
      {refusal([&] {
         ops::grid_sample(t({2, 3, 4}), t({2, 1, 1, 2}));
       }),
       "grid_sample: t must be (batch, channels, height, width) or (batch, channels, depth, "
       "height, width), got (2, 3, 4)"},
      {refusal([&] {
         ops::grid_sample(t({2, 3, 0, 5}), t({2, 1, 1, 2}));
       }),
       "grid_sample: an image must have 1 to 2^31 - 1 elements, got shape (2, 3, 0, 5)"},
      {refusal([&] {
         ops::grid_sample(t({2, 3, 4, 5, 6}), t({2, 1, 1, 3}));
       }),
       "grid_sample: grid must be float32 of (2, layers, rows, columns, 3), got (2, 1, 1, 3) "
       "float32"},
      {refusal([&] {
         ops::grid_sample(x, t({1, 1, 1, 2}));
       }),
       "grid_sample: grid must be float32 of (2, rows, columns, 2), got (1, 1, 1, 2) float32"},
      {refusal([&] {
         ops::grid_sample(x, t({2, 1, 1, 2}), {.mode = ops::Interpolation::kCubic});
       }),
       "grid_sample: mode must be kLinear or kNearest"},
      {refusal([&] {
         ops::roll(x, {1, 2});
       }),
       "roll: without axes, there must be 1 shift, got 2"},
      {refusal([&] {
         ops::roll(x, {1}, {0, 1});
       }),
       "roll: there must be a shift for each of 2 axes, got 1"},
      {refusal([&] { ops::unfold(x, 3, 6, 1); }),
       "unfold: size must be in [0, 5] and step at least 1, got 6 and 1"},
      {refusal([&] { ops::unfold(x, 3, 2, 0); }),
       "unfold: size must be in [0, 5] and step at least 1, got 2 and 0"},
      {refusal([&] { ops::histogram(x, 0, 0, 1); }),
       "histogram: bins must be in [1, 2^24] and min below max, got 0, 0 and 1"},
      {refusal([&] { ops::norm(x, kNan); }), "norm: p must be a number, got NaN"}};
  for (const auto& [got, want] : rows) EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace sluice::test
