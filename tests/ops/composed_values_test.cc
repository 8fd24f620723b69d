// Tests bit operators, cumulative products, counts and resampling against values of PyTorch and
// numpy, and their refusals.
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
