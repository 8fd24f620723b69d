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

// The values are those of torch.Tensor.scatter_reduce, with gradients of Σ w·y.
TEST(ScatterReduce, HasTheValuesAndGradientsOfPyTorch) {
  using enum ops::ScatterReduction;
  const HostTensor x = HostTensor::of<float>({3, 2}, f32, {1, 5, 2, -3, 7, 0});
  const HostTensor source = HostTensor::of<float>({4, 2}, f32, {4, 5, 2, 5, 7, -3, 0, 9});
  const HostTensor at = HostTensor::of<int32_t>({4, 2}, i32, {0, 0, 1, 0, 2, 1, 1, 1});
  const HostTensor w = HostTensor::of<float>({3, 2}, f32, {1, 2, 3, 4, 5, 6});
  const Doubles touched{0, 0, 0, 0, 0, 6};
  const std::tuple<ops::ScatterReduction, bool, Doubles, Doubles, Doubles> rows[] = {
      {kSum, true, {5, 15, 4, 3, 14, 0}, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 2, 5, 4, 3, 4}},
      {kSum, false, {4, 10, 2, 6, 7, 0}, touched, {1, 2, 3, 2, 5, 4, 3, 4}},
      {kMean,
       true,
       {2.5, 5, 1.3333333, 1, 7, 0},
       {0.5, 0.6666667, 1, 1.3333333, 2.5, 6},
       {0.5, 0.6666667, 1, 0.6666667, 2.5, 1.3333333, 1, 1.3333333}},
      {kMean, false, {4, 5, 1, 3, 7, 0}, touched, {1, 1, 1.5, 1, 5, 2, 1.5, 2}},
      {kMax,
       true,
       {4, 5, 2, 9, 7, 0},
       {0, 0.6666667, 1.5, 0, 2.5, 6},
       {1, 0.6666667, 1.5, 0.6666667, 2.5, 0, 0, 4}},
      {kMin,
       true,
       {1, 5, 0, -3, 7, 0},
       {1, 0.6666667, 0, 2, 2.5, 6},
       {0, 0.6666667, 0, 0.6666667, 2.5, 2, 3, 0}},
      // PyTorch also divides by elements of x that equal the result, although they are no terms.
      {kMax, false, {4, 5, 2, 9, 7, 0}, touched, {1, 1, 3, 1, 5, 0, 0, 4}},
      {kMin, false, {4, 5, 0, -3, 7, 0}, touched, {1, 1, 0, 1, 5, 4, 3, 0}}};
  for (const auto& [reduction, include_self, y, dx, dsource] : rows) {
    SCOPED_TRACE(
        fmt::format("reduction {}, include_self {}", static_cast<int>(reduction), include_self));
    const ops::ScatterReduceOptions o{0, reduction, include_self};
    expect({x, source, at, w}, {y, dx, dsource}, [&](const Tensors& t) {
      const auto f = [&](const Tensors& own) {
        return ops::scatter_reduce(own[0], own[1], own[2], o) * own[3];
      };
      const Tensors g = gradients(t, f);
      return Tensors{ops::scatter_reduce(t[0], t[1], t[2], o), g[0], g[1]};
    });
  }
}

// A NaN is the maximum, and has the gradient. The dtype of the counts is float32.
TEST(ScatterReduce, OfNanOfHalvesAndOutsideOfTheAxis) {
  expect({array(f32, {1, kNan, 3}), array(f32, {kNan, 2, 3, 4, 9}), array(i32, {0, 1, 2, 2, -1})},
         {{kNan, kNan, 4}, {0, 1, 0}, {1, 0, 0, 1, 0}}, [](const Tensors& t) {
           const auto f = [](const Tensors& own) {
             return ops::scatter_reduce(own[0], own[1], own[2],
                                        {.axis = 0, .reduction = ops::ScatterReduction::kMax});
           };
           const Tensors g = gradients(t, f);
           return Tensors{f(t), g[0], g[1]};
         });
  expect({array(f16, {1}), array(f16, Doubles(4095, 1)), array(i32, Doubles(4095, 0))},
         {{1}, {1.0 / 4096}, Doubles(4095, 1.0 / 4096)}, [](const Tensors& t) {
           const auto f = [](const Tensors& own) {
             return ops::scatter_reduce(own[0], own[1], own[2],
                                        {.axis = 0, .reduction = ops::ScatterReduction::kMean});
           };
           const Tensors g = gradients(t, f);
           return Tensors{f(t), g[0], g[1]};
         });
}

TEST(IndexReduce, CombinesSlicesAsPyTorch) {
  using enum ops::ScatterReduction;
  const HostTensor x = HostTensor::of<float>({3, 2}, f32, {1, 5, 2, -3, 7, 0});
  const HostTensor rows = HostTensor::of<float>({3, 2}, f32, {4, 5, 2, 5, 7, -3});
  const HostTensor columns = HostTensor::of<float>({3, 3}, f32, {4, 2, 9, 1, 2, 3, 0, 1, 7});
  expect({x, rows, array(i32, {2, 0, 2}), columns, array(i32, {1, 1, 0})},
         {{2, 5, 2, -3, 7, 5}, {1.5, 5, 2, -3, 6, 0.6666667}, {1, 2, 2, -3, 7, 0}},
         [](const Tensors& t) {
           return Tensors{ops::index_reduce(t[0], t[1], t[2], {0, kMax, false}),
                          ops::index_reduce(t[0], t[1], t[2], {0, kMean, true}),
                          ops::index_reduce(t[0], t[3], t[4], {1, kMin, true})};
         });
  Ir ir;
  const Tensor t = ir.main_graph().constant(x, "x");
  const Tensor indices = ir.main_graph().constant(HostTensor({{2, 1}, i32, {}}), "indices");
  try {
    ops::index_reduce(t, t, indices);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_STREQ(e.what(),
                 "index_reduce: t must have an axis and indices one axis, got shapes (3, 2) and "
                 "(2, 1)");
  }
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
