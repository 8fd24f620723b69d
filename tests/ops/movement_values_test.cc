// Tests operators that move, sort and add up elements against values of PyTorch.
#include "edge_values.h"

namespace sluice::test {
namespace {

const HostTensor& two_rows() {
  static const HostTensor x = HostTensor::of<float>({2, 3}, f32, {0, 1, 2, 3, 4, 5});
  return x;
}

TEST(Pad, ExtendsAxesInEachMode) {
  using ops::PadMode;
  const std::pair<PadMode, Doubles> rows[] = {
      {PadMode::kConstant, {-1, -1, 0, 1, 2, -1, -1, -1, 3, 4, 5, -1}},
      {PadMode::kReflect, {2, 1, 0, 1, 2, 1, 5, 4, 3, 4, 5, 4}},
      {PadMode::kReplicate, {0, 0, 0, 1, 2, 2, 3, 3, 3, 4, 5, 5}},
      {PadMode::kCircular, {1, 2, 0, 1, 2, 0, 4, 5, 3, 4, 5, 3}}};
  for (const auto& [mode, want] : rows) {
    SCOPED_TRACE(static_cast<int>(mode));
    expect({two_rows()}, {want}, [m = mode](const Tensors& x) {
      return Tensors{ops::pad(x[0], {{}, {2, 1}}, m, -1)};
    });
  }
  // Axis 0 grows and axis 1 shrinks.
  expect({two_rows()}, {{1, 2, 4, 5, 7, 7}}, [](const Tensors& x) {
    return Tensors{ops::pad(x[0], {{0, 1}, {-1, 0}}, PadMode::kConstant, 7)};
  });
}

TEST(Pad, AddsTheGradientsOfMirroredElements) {
  const HostTensor weights = array(f32, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  expect({array(f32, {0, 1, 2, 3, 4, 5}), weights}, {{3, 6, 6, 16, 16, 8}}, [](const Tensors& x) {
    const auto f = [](const Tensors& t) {
      return ops::pad(t[0], {{3, 2}}, ops::PadMode::kReflect) * t[1];
    };
    return Tensors{gradients(x, f)[0]};
  });
}

TEST(Pad, RefusesMoreElementsThanTheAxisGives) {
  Ir ir;
  const Tensor x = ir.main_graph().constant(two_rows(), "x");
  const auto message = [&](const std::vector<ops::PadWidth>& widths, ops::PadMode mode) {
    try {
      ops::pad(x, widths, mode);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = -kMax - 1;
  const std::tuple<std::vector<ops::PadWidth>, ops::PadMode, const char*> rows[] = {
      {{{}, {3, 0}}, ops::PadMode::kReflect, "at most 2 can be added to an end, got 3"},
      {{{}, {kMax, 0}}, ops::PadMode::kReflect, "at most 2 can be added to an end"},
      {{{}, {0, 4}}, ops::PadMode::kCircular, "at most 3 can be added to an end, got 4"},
      {{{}, {0, kMax}}, ops::PadMode::kConstant, "exceeds 63 bits"},
      {{{}, {kMax, kMax}}, ops::PadMode::kReplicate, "exceeds 63 bits"},
      {{{-2, -1}, {}}, ops::PadMode::kConstant, "to be removed: -2 before and -1 after"},
      {{{kMin, 0}, {}}, ops::PadMode::kConstant, "to be removed"},
      {{{0, kMin}, {}}, ops::PadMode::kConstant, "to be removed"},
      {{{1, 1}}, ops::PadMode::kConstant, "needs 2 widths, got 1"}};
  for (const auto& [widths, mode, want] : rows) {
    const std::string got = message(widths, mode);
    EXPECT_NE(got.find(want), std::string::npos) << got << "\ninstead of: " << want;
  }
}

TEST(Tile, RepeatsEachAxis) {
  expect({two_rows()},
         {{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}, {}},
         [](const Tensors& x) {
           return Tensors{ops::tile(x[0], {1, 2}), ops::tile(x[0], {2, 1, 1}),
                          ops::tile(x[0], {0, 1})};
         });
}

TEST(Tile, RefusesSizesThatOverflow) {
  Ir ir;
  const Tensor x = ir.main_graph().constant(two_rows(), "x");
  EXPECT_THROW(ops::tile(x, {int64_t{1} << 62, 1}), Error);
  EXPECT_THROW(ops::tile(x, {1, -1}), Error);
  EXPECT_THROW(ops::tile(x, {2}), Error);
  EXPECT_THROW(ops::add_along_axis(x, ops::argsort(x), {.axis = 1, .size = int64_t{1} << 62}),
               Error);
  EXPECT_THROW(ops::topk(x, 4), Error);
  EXPECT_THROW(ops::topk(ops::sum(x), 0), Error);
}

TEST(Flip, ReversesAxes) {
  expect({two_rows()}, {{5, 4, 3, 2, 1, 0}, {2, 1, 0, 5, 4, 3}, {3, 4, 5, 0, 1, 2}},
         [](const Tensors& x) {
           return Tensors{ops::flip(x[0]), ops::flip(x[0], {-1}), ops::flip(x[0], {0})};
         });
}

TEST(Sort, PutsNanLastAndKeepsTheOrderOfEqualElements) {
  const HostTensor x =
      HostTensor::of<float>({2, 3}, f32, {3, std::numeric_limits<float>::quiet_NaN(), 1, 2, 2, -1});
  expect({x},
         {{1, 3, kNan, -1, 2, 2}, {2, 0, 1, 2, 0, 1}, {kNan, 3, 1, 2, 2, -1}, {1, 0, 2, 0, 1, 2}},
         [](const Tensors& t) {
           const auto up = ops::sort(t[0]), down = ops::sort(t[0], {.axis = 1, .descending = true});
           return Tensors{up.values, up.indices, down.values, down.indices};
         });
}

TEST(Sort, GivesTheFirstOrMiddleElementsAndTheirGradients) {
  expect({array(f32, {3, 1, 4, 1, 5})},
         {{5, 4, 3}, {4, 2, 0}, {1, 1}, {1, 3}, {3}, {0}, {1, 0, 1, 0, 1}}, [](const Tensors& t) {
           const auto largest = ops::topk(t[0], 3);
           const auto smallest = ops::topk(t[0], 2, 0, false);
           const auto middle = ops::median(t[0]);
           const Tensor g =
               gradients(t, [](const Tensors& x) { return ops::topk(x[0], 3).values; })[0];
           return Tensors{largest.values,
                          largest.indices,
                          smallest.values,
                          smallest.indices,
                          middle.values,
                          middle.indices,
                          g};
         });
}

TEST(Cumsum, AddsInBothDirections) {
  expect({two_rows()},
         {{0, 1, 2, 3, 5, 7}, {0, 0, 1, 0, 3, 7}, {3, 3, 2, 12, 9, 5}, {2, 1, 0, 2, 1, 0}},
         [](const Tensors& x) {
           return Tensors{ops::cumsum(x[0]), ops::cumsum(x[0], {.axis = 1, .exclusive = true}),
                          ops::cumsum(x[0], {.axis = -1, .reverse = true}),
                          gradients(x, [](const Tensors& t) {
                            return ops::cumsum(t[0], {.axis = 1, .exclusive = true});
                          })[0]};
         });
}

TEST(TakeAlongAxis, HasTheValuesAndGradientsOfPyTorch) {
  const HostTensor x = HostTensor::of<float>({2, 2}, f32, {1, 2, 3, 4});
  const HostTensor at = HostTensor::of<int32_t>({2, 2}, i32, {0, 0, 1, 0});
  expect({x, at, x}, {{1, 1, 4, 3}, {3, 0, 4, 3}}, [](const Tensors& t) {
    const auto take = [&](const Tensor& x) { return ops::take_along_axis(x, t[1]); };
    // x is also the weight of each element.
    const Tensor g = ops::add_along_axis(t[2], t[1], {.axis = 1, .size = 2});
    return Tensors{take(t[0]), g};
  });
}

TEST(Var, DividesByTheElementsLessTheCorrection) {
  // The sum of the squares exceeds float16.
  Doubles tens(1000, 10);
  for (size_t i = 0; i < tens.size(); i += 2) tens[i] = -10;
  expect({array(f16, tens)}, {{100}}, [](const Tensors& x) { return Tensors{ops::var(x[0])}; });
  expect({array(f32, {1, 2, 4, 8})}, {{7.1875}, {9.583333}}, [](const Tensors& x) {
    return Tensors{ops::var(x[0]), ops::var(x[0], {}, 1)};
  });
}

TEST(AnyAndAll, TestForElementsOtherThanZero) {
  const HostTensor x = HostTensor::of<float>(
      {3, 2}, f32, {0, -0.0f, 0, std::numeric_limits<float>::quiet_NaN(), 1, 2});
  expect({x}, {{0, 1, 1}, {0, 0, 1}, {1}, {0}, {0}, {1}}, [](const Tensors& t) {
    const Tensor none = ops::slice(t[0], {0}, {0});
    return Tensors{ops::any(t[0], {.axes = {1}}),
                   ops::all(t[0], {.axes = {1}}),
                   ops::any(t[0]),
                   ops::all(t[0]),
                   ops::any(none),
                   ops::all(none)};
  });
}

}  // namespace
}  // namespace sluice::test
