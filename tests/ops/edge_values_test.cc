// Tests operators at the edges of their domains, interpreted and compiled. Expected values are
// written by hand. They are those of PyTorch, unless the operator's header defines others.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "edge_values.h"

namespace sluice::test {
namespace {

constexpr double kInt32Min = -2147483648.0;
constexpr double kInt32Max = 2147483647.0;
constexpr double kUint32Max = 4294967295.0;

// A sum of squares overflows float32 where its root does not.
TEST(EdgeValues, NormsInExtendedRange) {
  const auto norm = [](const Tensors& t) -> Tensors {
    const Tensor total =
        ops::add_extended(ops::sumsquare_extended(t[0]), ops::sumsquare_extended(t[1]));
    return {ops::sqrt_extended(total)};
  };
  const double max = std::numeric_limits<float>::max();
  const std::tuple<Doubles, Doubles, double> rows[] = {{{3, 4}, {12}, 13},
                                                       {{3e30, 4e30}, {12e30}, 13e30},
                                                       {{3e30, 4e30}, {1e-30}, 5e30},
                                                       {{0, 0}, {1e25, -1e25, 1e25, 1e25}, 2e25},
                                                       {{1.5e19, 1.5e19}, {1.5e19, 1.5e19}, 3e19},
                                                       {{3e38, -3e38}, {3e38}, max},
                                                       {{1e30, kInf}, {1e30}, kInf},
                                                       {{1e30, kInf}, {kNan}, kNan},
                                                       {{kNan, 1}, {1e30}, kNan}};
  for (const auto& [x, y, want] : rows) expect({array(f32, x), array(f32, y)}, {{want}}, norm);
}

TEST(Unary, HasTheValuesAndGradientsOfPyTorch) {
  struct Values {
    Tensor (*function)(TensorArg);
    Doubles x, y, dx;
  };
  const Values rows[] = {
      {ops::hard_sigmoid, {-4, -3, 0.5, 3}, {0, 0, 0.5833333, 1}, {0, 0, 0.1666667, 0}},
      {ops::hard_swish, {-4, -3, 0.5, 3}, {0, 0, 0.2916667, 3}, {0, 0, 0.6666667, 1}},
      {ops::mish,
       {0.5, 2, 3, 5},
       {0.3752452, 1.943959, 2.986535, 4.999552},
       {0.8864244, 1.069318, 1.021107, 1.0008}},
      {ops::softplus,
       {-4, 0, 2, 100, kNan},
       {0.01814993, 0.6931472, 2.126928, 100, kNan},
       {0.01798621, 0.5, 0.8807971, 1, kNan}},
      {ops::erf,
       {-4, 0, 0.5, kNan},
       {-1, 0, 0.5204999, kNan},
       {1.269823e-07, 1.128379, 0.8787826, kNan}},
      {ops::round, {-1.25, 0.5, 1.5, 2.5, kNan}, {-1, 0, 2, 2, kNan}, {}},
      {ops::sign, {-1.25, 0, 2, kNan}, {-1, 0, 1, kNan}, {}},
      {ops::log1p, {-1, 1e-10, kInf}, {-kInf, 1e-10, kInf}, {kInf, 1, 0}},
      {ops::expm1, {-kInf, 1e-10, 100}, {-1, 1e-10, kInf}, {0, 1, kInf}},
      {ops::square, {-3, 0, kInf}, {9, 0, kInf}, {-6, 0, kInf}},
      {ops::sin,
       {-1e6, 0.5, 3, kInf},
       {0.3499935, 0.4794255, 0.14112, kNan},
       {0.9367521, 0.8775826, -0.9899925, kNan}},
      {ops::cos,
       {-1e6, 0.5, 3, kInf},
       {0.9367521, 0.8775826, -0.9899925, kNan},
       {-0.3499935, -0.4794255, -0.14112, kNan}},
      {ops::tan,
       {-1e6, 0.5, 3, kInf},
       {0.3736245, 0.5463025, -0.1425465, kNan},
       {1.139595, 1.298446, 1.02032, kNan}},
      {ops::atan,
       {-kInf, -2, 0.5, kInf},
       {-1.570796, -1.107149, 0.4636476, 1.570796},
       {0, 0.2, 0.8, 0}},
      {ops::asin,
       {-1, 0.5, 1, 1.5},
       {-1.570796, 0.5235988, 1.570796, kNan},
       {kInf, 1.154701, kInf, kNan}},
      {ops::acos,
       {-1, 0.5, 1, -1.5},
       {3.141593, 1.047198, 0, kNan},
       {-kInf, -1.154701, -kInf, kNan}},
      {ops::sinh,
       {-kInf, 0.5, 3, kNan},
       {-kInf, 0.5210953, 10.01787, kNan},
       {kInf, 1.127626, 10.06766, kNan}},
      {ops::cosh,
       {-kInf, 0.5, 3, kNan},
       {kInf, 1.127626, 10.06766, kNan},
       {-kInf, 0.5210953, 10.01787, kNan}},
      {ops::asinh,
       {-kInf, 0.5, 3, kNan},
       {-kInf, 0.4812118, 1.818446, kNan},
       {0, 0.8944272, 0.3162278, kNan}},
      {ops::acosh, {0.5, 1, 1.5, kInf}, {kNan, 0, 0.9624237, kInf}, {kNan, kInf, 0.8944272, 0}},
      {ops::atanh, {-1, 0.5, 1, 1.5}, {-kInf, 0.5493061, kInf, kNan}, {kInf, 1.333333, kInf, -0.8}},
      {ops::log2, {0, 0.25, 3, kInf}, {-kInf, -2, 1.584963, kInf}, {kInf, 5.77078, 0.4808983, 0}},
  };
  for (const Values& row : rows) {
    SCOPED_TRACE(&row - rows);
    const auto f = [&](const Tensors& t) { return row.function(t[0]); };
    expect({array(f32, row.x)}, {row.y}, [&](const Tensors& x) { return Tensors{f(x)}; });
    // Step functions pass no gradient.
    if (!row.dx.empty())
      expect({array(f32, row.x)}, {row.dx}, [&](const Tensors& x) { return gradients(x, f); });
  }
  expect({array(f32, {-4, -1.25, 0, 2})}, {{-1.472527, -1.070243, 0, 2}, {-0.8, -0.25, 0, 2}},
         [](const Tensors& x) {
           return Tensors{ops::elu(x[0], 1.5), ops::leaky_relu(x[0], 0.2)};
         });
}

TEST(Binary, HasTheValuesAndGradientsOfPyTorch) {
  struct Values {
    Tensor (*function)(TensorArg, TensorArg);
    Doubles lhs, rhs, y, of_lhs, of_rhs;
  };
  const Doubles fives{5, -5, 5, -5, 7.5}, threes{3, 3, -3, -3, 2};
  const Values rows[] = {
      {ops::atan2,
       {0, 1, -2, 0.5},
       {-1, 0, 3, -0.25},
       {3.141593, 1.570796, -0.5880026, 2.034444},
       {-1, 0, 0.2307692, -0.8},
       {0, -1, 0.1538462, -1.6}},
      {ops::fmod, {1, -3}, {0.1, 3}, {0.09999999, 0}, {1, 1}, {-9, 1}},
      {ops::fmod, fives, threes, {2, -2, 2, -2, 1.5}, {1, 1, 1, 1, 1}, {-1, 1, 1, -1, -3}},
      {ops::remainder, fives, threes, {2, 1, -1, -2, 1.5}, {1, 1, 1, 1, 1}, {-1, 2, 2, -1, -3}},
  };
  for (const Values& row : rows) {
    SCOPED_TRACE(&row - rows);
    expect({array(f32, row.lhs), array(f32, row.rhs)}, {row.y, row.of_lhs, row.of_rhs},
           [&](const Tensors& x) {
             const auto f = [&](const Tensors& t) { return row.function(t[0], t[1]); };
             Tensors all{f(x)};
             for (const Tensor& g : gradients(x, f)) all.push_back(g);
             return all;
           });
  }
}

TEST(Pow, OfZerosAndNegativeBases) {
  const HostTensor base = array(f32, {0, 0, 0, 0, 0, -2, -2, -2, kNan, kInf, 2, 0, 0});
  const HostTensor exponent = array(f32, {0, 1, 2, 0.5, -1, 3, 0, 0.5, 0, 0, 0, kNan, 3});
  const double ln2 = std::log(2.0);
  expect({base, exponent},
         {{1, 0, 0, 0, kInf, -8, 1, kNan, 1, 1, 1, kNan, 0},
          {0, 1, 0, kInf, -kInf, 12, 0, kNan, 0, 0, 0, kNan, 0},
          {0, 0, 0, 0, -kInf, kNan, kNan, kNan, kNan, kInf, ln2, kNan, 0}},
         [](const Tensors& x) {
           const auto f = [](const Tensors& t) { return ops::pow(t[0], t[1]); };
           Tensors all{f(x)};
           for (const Tensor& g : gradients(x, f)) all.push_back(g);
           return all;
         });
}

TEST(Pow, WithANumberForExponent) {
  const Doubles base{0, -2, 2, kNan, kInf};
  const std::vector<std::pair<double, Doubles>> rows{{0, {0, 0, 0, 0, 0}},
                                                     {1, {1, 1, 1, 1, 1}},
                                                     {2, {0, -4, 4, kNan, kInf}},
                                                     {-1, {-kInf, -0.25, -0.25, kNan, 0}}};
  for (const DType dtype : {f32, f16, bf16}) {
    for (const auto& [exponent, want] : rows) {
      SCOPED_TRACE(exponent);
      expect({array(dtype, base)}, {want}, [e = exponent](const Tensors& x) {
        return gradients(x, [e](const Tensors& t) { return ops::pow(t[0], e); });
      });
    }
  }
}

// The gradient of a scalar exponent is a sum over the bases.
TEST(Pow, OfOneExponentForAll) {
  const double sum = 4 * std::log(2.0) + 16 * std::log(4.0);
  expect({array(f32, {0, 1, 2, 4}), array(f32, {2})}, {{0, 2, 4, 8}, {sum}}, [](const Tensors& x) {
    return gradients(x, [](const Tensors& t) { return ops::pow(t[0], t[1]); });
  });
}

TEST(Integers, DivideTowardsMinusInfinityAndWrap) {
  expect({array(i32, {7, -7, 7, -7, 5, kInt32Min, -1}), array(i32, {2, 2, -2, -2, 0, -1, 2})},
         {{3, -4, -4, 3, 0, kInt32Min, -1}, {9, -5, 5, -9, 5, kInt32Max, 1}}, [](const Tensors& x) {
           return Tensors{x[0] / x[1], x[0] + x[1]};
         });
  expect({array(u32, {kUint32Max, 4000000000.0, 7}), array(u32, {2, 4000000000.0, 0})},
         {{2147483647, 1, 0}, {1, 3705032704.0, 7}, {kUint32Max, 4000000000.0, 7}, {2, 4e9, 0}},
         [](const Tensors& x) {
           return Tensors{x[0] / x[1], x[0] + x[1], ops::maximum(x[0], x[1]),
                          ops::minimum(x[0], x[1])};
         });
  expect({array(u8, {255, 3, 0}), array(u8, {2, 5, 0})}, {{127, 0, 0}, {253, 254, 0}, {1, 253, 0}},
         [](const Tensors& x) {
           return Tensors{x[0] / x[1], x[0] - x[1], -x[0]};
         });
}

TEST(Integers, CompareWithTheirSign) {
  expect({array(i32, {-1, kInt32Min, 0}), array(i32, {1, kInt32Max, -1})}, {{0, 0, 1}, {1, 1, 0}},
         [](const Tensors& x) {
           return Tensors{ops::greater(x[0], x[1]), ops::less(x[0], x[1])};
         });
  expect({array(u32, {kUint32Max, 0}), array(u32, {1, 2147483648.0})}, {{1, 0}, {0, 1}},
         [](const Tensors& x) {
           return Tensors{ops::greater(x[0], x[1]), ops::less(x[0], x[1])};
         });
}

TEST(Integers, AreReducedWithTheirSign) {
  const auto all = [](const Tensors& x) {
    return Tensors{ops::max(x[0]),    ops::min(x[0]),    ops::sum(x[0]),
                   ops::argmax(x[0]), ops::argmin(x[0]), ops::prod(x[0])};
  };
  expect({array(i32, {-5, kInt32Min, -2, -9})}, {{-2}, {kInt32Min}, {2147483632.0}, {2}, {1}, {0}},
         all);
  expect({array(u32, {kUint32Max, 3, 2147483648.0})},
         {{kUint32Max}, {3}, {2147483650.0}, {0}, {1}, {2147483648.0}}, all);
}

TEST(Integers, AreIncrementedModulo) {
  expect(
      {array(i32, {kInt32Max, -7, kInt32Min})}, {{2, 1, 6}, {0, 2147483642.0, 1}},
      [](const Tensors& x) {
        return Tensors{ops::increment_mod(x[0], 1, 7), ops::increment_mod(x[0], 1, 2147483648.0)};
      });
  expect({array(u8, {255, 0, 199})}, {{2, 3, 202}, {58, 3, 2}}, [](const Tensors& x) {
    return Tensors{ops::increment_mod(x[0], 3, 256), ops::increment_mod(x[0], 3, 200)};
  });
  expect({array(f32, {kNan, kInf, -2, 2.25})}, {{kNan, kNan, 1.5, 0.75}},
         [](const Tensors& x) { return Tensors{ops::increment_mod(x[0], 1, 2.5)}; });
}

TEST(Casts, SaturateFromFloatingPointAndWrapFromIntegers) {
  const auto to_each = [](const Tensors& x) {
    Tensors all;
    for (const DType dtype : {i32, u32, u8, boolean}) {
      if (x[0].dtype() != dtype) all.push_back(ops::cast(x[0], dtype));
    }
    return all;
  };
  const HostTensor floats =
      array(f32, {kNan, kInf, -kInf, 1e20, -2.7, 2.7, 2147483520.0, 3e9, 255.5, 300, -0.0});
  expect({floats},
         {{0, kInt32Max, kInt32Min, kInt32Max, -2, 2, 2147483520.0, kInt32Max, 255, 300, 0},
          {0, kUint32Max, 0, kUint32Max, 0, 2, 2147483520.0, 3e9, 255, 300, 0},
          {0, 255, 0, 255, 0, 2, 255, 255, 255, 255, 0},
          {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}},
         to_each);
  expect({array(f16, {kNan, 65504, -1.5, 0})},
         {{0, 65504, -1, 0}, {0, 65504, 0, 0}, {0, 255, 0, 0}, {1, 1, 1, 0}}, to_each);
  expect({array(i32, {300, -1, kInt32Min, 0})},
         {{300, kUint32Max, 2147483648.0, 0}, {44, 255, 0, 0}, {1, 1, 1, 0}}, to_each);
  expect({array(u32, {kUint32Max, 2147483648.0, 300})},
         {{-1, kInt32Min, 300}, {255, 0, 44}, {1, 1, 1}}, to_each);
  expect({array(u32, {kUint32Max, 2147483649.0}), array(i32, {kInt32Min, -1})},
         {{kUint32Max, 2147483649.0}, {kInt32Min, -1}}, [](const Tensors& x) {
           return Tensors{ops::cast(x[0], f32), ops::cast(x[1], f32)};
         });
}

// Negative indices do not count from the end, and neither do unsigned indices with the same bits.
TEST(Indices, OutsideOfTheAxisTakeNothing) {
  const HostTensor table = array(f32, {10, 20, 30});
  const HostTensor whole = array(i32, {10, 20, 30});
  const HostTensor grad = array(f32, {1, 2, 4, 8});
  for (const HostTensor& at :
       {array(i32, {-1, 2, kInt32Min, 3}), array(u32, {kUint32Max, 2, 2147483648.0, 3})}) {
    expect({table, whole, grad, at},
           {{kNan, 30, kNan, kNan},
            {0, 30, 0, 0},
            {0, 30, 0, 0},
            {0, 0, 2},
            {0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0},
            {10, 20, 31}},
           [](const Tensors& x) {
             const Tensor values = x[2].graph().constant(array(f32, {0, 1}));
             return Tensors{ops::gather(x[0], x[3]),
                            ops::gather(x[0], x[3], {.zero_out_of_range = true}),
                            ops::gather(x[1], x[3]),
                            ops::gather_grad(x[2], x[3], {.axis = 0, .size = 3}),
                            ops::onehot(x[3], values, {.classes = 3}),
                            ops::sparse_accumulate_(x[0], x[2], x[3], 0, 0.5)};
           });
  }
}

TEST(Softmax, OfMasksAndInfinities) {
  const double near = std::exp(1.0) / (std::exp(1.0) + std::exp(2.0));
  expect({array(f32, {-kInf, 1, 2}), array(f32, {-kInf, -kInf}), array(f32, {kInf, 1})},
         {{0, near, 1 - near},
          {-kInf, std::log(near), std::log(1 - near)},
          {1, 1 - 3 * near, 3 * near - 2},
          {kNan, kNan},
          {kNan, kNan}},
         [](const Tensors& x) {
           return Tensors{
               ops::softmax(x[0]), ops::log_softmax(x[0]),
               gradients({x[0]}, [](const Tensors& t) { return ops::log_softmax(t[0]); })[0],
               ops::softmax(x[1]), ops::softmax(x[2])};
         });
}

TEST(LogSumExp, OfMasksAndInfinities) {
  const auto f = [](const Tensors& t) { return ops::logsumexp(t[0]); };
  expect({array(f32, {-kInf, 1}), array(f32, {-kInf, -kInf}), array(f32, {kInf, 1}),
          array(f32, {kInf, kNan})},
         {{1}, {0, 1}, {-kInf}, {kInf}, {kNan}}, [&](const Tensors& x) {
           return Tensors{f(x), gradients({x[0]}, f)[0], f({x[1]}), f({x[2]}), f({x[3]})};
         });
}

// The gradient of clip is zero at the bounds (compare.h). PyTorch's is not.
TEST(Gradients, OfKinksAndNan) {
  const HostTensor x = array(f32, {kNan, 0, -0.0, -1, 1, kInf});
  expect({x, array(f32, {2, kNan, kNan}), array(f32, {3, 1, 3})},
         {{kNan, 0, 0, 0, 1, kInf},
          {1, 0, 0, 0, 1, 1},
          {0, 0, 0, -1, 1, 1},
          {0, 1, 1, 0, 0, 0},
          {0, 0.5, 0.5},
          {0.5, 0, 0.5}},
         [](const Tensors& t) {
           const auto of = [](const Tensor& operand, const auto& f) {
             return gradients({operand}, [&](const Tensors& own) { return f(own[0]); })[0];
           };
           return Tensors{
               ops::relu(t[0]),
               of(t[0], [](const Tensor& a) { return ops::relu(a); }),
               of(t[0], [](const Tensor& a) { return ops::abs(a); }),
               of(t[0], [](const Tensor& a) { return ops::clip(a, {.min = -1, .max = 1}); }),
               of(t[1], [](const Tensor& a) { return ops::max(a); }),
               of(t[2], [](const Tensor& a) { return ops::max(a); })};
         });
}

// The gradient of Σ w·f(x) with weights 0, 1, … puts weight i at the element that f moved to i.
TEST(Shapes, ComposedFunctionsAndTheirGradients) {
  const auto slope = [](const Tensor& x, const auto& f) {
    return gradients({x}, [&](const Tensors& own) {
      const Tensor y = f(own[0]);
      std::vector<float> weights;
      for (int64_t i = 0; i < y.elements(); ++i) weights.push_back(static_cast<float>(i));
      return y * y.graph().constant(HostTensor::of<float>(y.shape(), f32, weights));
    })[0];
  };
  const HostTensor x = HostTensor::of<float>({2, 3}, f32, {1, 2, 3, 4, 5, 6});
  expect({x},
         {{1, 4, 2, 5, 3, 6},
          {0, 2, 4, 1, 3, 5},
          {3, 6},
          {0, 0, 0, 0, 0, 1},
          {4, 2},
          {0, 1, 0, 0, 0, 0},
          {1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6},
          {3, 5, 7, 15, 17, 19},
          {1, 2, 3, 4, 5, 6, 2, 4, 6, 8, 10, 12},
          {12, 15, 18, 21, 24, 27}},
         [&](const Tensors& t) {
           const auto swap = [](const Tensor& a) { return ops::swap_axes(a, 0, 1); };
           const auto last = [](const Tensor& a) { return ops::select(a, -1, 1); };
           const auto back = [](const Tensor& a) {
             return ops::slice(ops::flatten(a), {3}, {}, {-2});
           };
           const auto widen = [](const Tensor& a) {
             return ops::expand(ops::unsqueeze(a, 1), {-1, 2, -1});
           };
           const auto twice = [](const Tensor& a) { return ops::stack({a, a * 2}); };
           return Tensors{swap(t[0]),  slope(t[0], swap), last(t[0]),  slope(t[0], last),
                          back(t[0]),  slope(t[0], back), widen(t[0]), slope(t[0], widen),
                          twice(t[0]), slope(t[0], twice)};
         });
}

TEST(Slices, ViewsTakeAnyStep) {
  const HostTensor x = HostTensor::of<float>({7}, f32, {0, 1, 2, 3, 4, 5, 6});
  expect({x}, {{10, 1, 12, 3, 14, 5, 16}, {16, 14, 12, 10}, {16, 3}}, [](const Tensors& t) {
    const Tensor all = ops::identity(t[0]);
    const Tensor view = ops::slice_(all, {std::nullopt}, {}, {-2});
    Tensor written = view;
    written += 10;
    return Tensors{ops::identity(all), ops::identity(view),
                   ops::slice(all, {std::nullopt}, {2}, {-3})};
  });
}

TEST(Reductions, OfScalarsAndOfNothing) {
  const HostTensor none(TensorSpec{{2, 0}, f32});
  expect({HostTensor::scalar(3), none},
         {{3}, {1}, {3}, {0}, {1}, {1}, {0, 0}, {1, 1}, {kNan, kNan}, {kNan}, {-kInf}, {}},
         [](const Tensors& t) {
           const ops::ReduceOptions axis{.axes = {-1}};
           const auto mean = [&](const Tensors& own) { return ops::mean(own[0], axis); };
           return Tensors{ops::sum(t[0], {.axes = {0}}),
                          gradients({t[0]}, mean)[0],
                          ops::max(t[0], {.axes = {-1}, .keepdims = true}),
                          ops::argmin(t[0], {.axis = -1}),
                          ops::softmax(t[0]),
                          ops::prod(t[1]),
                          ops::sum(t[1], axis),
                          ops::prod(t[1], axis),
                          ops::mean(t[1], axis),
                          ops::mean(t[1]),
                          ops::logsumexp(t[1]),
                          gradients({t[1]}, mean)[0]};
         });
}

TEST(ArgMax, TakesTheFirstNan) {
  expect({array(f32, {1, kNan, kInf, kNan})}, {{1}, {1}}, [](const Tensors& x) {
    return Tensors{ops::argmax(x[0]), ops::argmin(x[0])};
  });
  expect({array(f32, {-kInf, 2, kInf, kInf})}, {{2}, {0}}, [](const Tensors& x) {
    return Tensors{ops::argmax(x[0]), ops::argmin(x[0])};
  });
}

}  // namespace
}  // namespace sluice::test
