// Tests properties of operator functions that generated tests do not cover: numpy's conventions,
// corner cases, errors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sluice/interp/interpreter.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/conv.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/pooling.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/softmax.h"
#include "sluice/ops/transpose.h"

namespace sluice {
namespace {

using Doubles = std::vector<double>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

HostTensor floats(Shape shape, const std::vector<float>& values) {
  return HostTensor::of<float>(std::move(shape), f32, values);
}
HostTensor ints(Shape shape, const std::vector<int32_t>& values) {
  return HostTensor::of<int32_t>(std::move(shape), i32, values);
}
/// Returns 0, 1, 2, … in the given shape.
HostTensor count(Shape shape) {
  HostTensor t(f32_spec(std::move(shape)));
  float next = 0;
  for (float& x : t.as<float>()) x = next++;
  return t;
}

/// Runs an expression of constants in float.
class Operators : public testing::Test {
 protected:
  Tensor constant(HostTensor value) { return graph_.constant(std::move(value)); }
  HostTensor run(const Tensor& t) {
    graph_.set_outputs({t});
    return Interpreter(ir_).evaluate(graph_, {})[0];
  }
  Doubles values(const Tensor& t) { return run(t).to_doubles(); }

  Ir ir_;
  Graph& graph_ = ir_.create_empty_graph("expression");
};

template <typename F>
std::string refusal(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    return e.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

void expect_refused(const std::string& with, const std::function<void()>& f) {
  const std::string text = refusal(f);
  EXPECT_NE(text.find(with), std::string::npos) << text;
}

TEST_F(Operators, ReshapeInfersOneDimension) {
  const Tensor x = constant(count({2, 6}));
  EXPECT_EQ(ops::reshape(x, {3, -1}).shape(), (Shape{3, 4}));
  EXPECT_EQ(ops::reshape(x, {-1}).shape(), (Shape{12}));
  EXPECT_EQ(ops::flatten(x).shape(), (Shape{12}));
  expect_refused("more than one dimension", [&] { ops::reshape(x, {-1, -1}); });
  expect_refused("below -1", [&] { ops::reshape(x, {-2, 6}); });
  expect_refused("the dimensions of (5, -1) except -1 must divide", [&] {
    ops::reshape(x, {5, -1});
  });
  expect_refused("the dimensions of (0, -1) except -1 must divide", [&] {
    ops::reshape(x, {0, -1});
  });
  expect_refused("reshape (C3)", [&] { ops::reshape(x, {5, 2}); });
}

TEST_F(Operators, SqueezeDropsAxesOfSizeOne) {
  const Tensor x = constant(count({1, 3, 1, 2}));
  EXPECT_EQ(ops::squeeze(x).shape(), (Shape{3, 2}));
  EXPECT_EQ(ops::squeeze(x, {-2}).shape(), (Shape{1, 3, 2}));
  expect_refused("not of size 1", [&] { ops::squeeze(x, {1}); });
  expect_refused("given twice", [&] { ops::squeeze(x, {0, -4}); });
  expect_refused("squeeze", [&] { ops::squeeze(x, {4}); });
}

TEST_F(Operators, TransposePermutes) {
  const Tensor x = constant(count({2, 3}));
  EXPECT_EQ(values(ops::transpose(x)), (Doubles{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(ops::transpose(constant(count({2, 3, 4})), {-1, 0, 1}).shape(), (Shape{4, 2, 3}));
  expect_refused("transpose (C2)", [&] { ops::transpose(x, {0, 0}); });
  expect_refused("transpose", [&] { ops::transpose(x, {0, 2}); });
}

TEST_F(Operators, SliceFollowsNumpy) {
  const Tensor x = constant(count({6}));
  const auto slice = [&](std::optional<int64_t> start, std::optional<int64_t> stop,
                         std::optional<int64_t> step) {
    return values(ops::slice(x, {start}, {stop}, {step}));
  };
  EXPECT_EQ(slice(1, 3, {}), (Doubles{1, 2}));
  EXPECT_EQ(slice(-2, {}, {}), (Doubles{4, 5}));
  EXPECT_EQ(slice({}, -4, {}), (Doubles{0, 1}));
  EXPECT_EQ(slice(4, 100, {}), (Doubles{4, 5}));
  EXPECT_EQ(slice({}, {}, -1), (Doubles{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(slice(3, 1, -1), (Doubles{3, 2}));
  EXPECT_EQ(slice(1, {}, -1), (Doubles{1, 0}));
  EXPECT_EQ(slice(100, -3, -1), (Doubles{5, 4}));
  EXPECT_EQ(slice(3, 3, {}), (Doubles{}));
  EXPECT_EQ(slice(-100, 1, {}), (Doubles{0}));
  EXPECT_EQ(slice(2, -100, -1), (Doubles{2, 1, 0}));
  EXPECT_EQ(ops::slice(x, {std::nullopt}), x) << "nothing to do gives the tensor itself";
  const Tensor m = constant(count({2, 3}));
  EXPECT_EQ(values(ops::slice(m, {1}, {3}, {}, {-1})), (Doubles{1, 2, 4, 5}));
  EXPECT_EQ(values(ops::slice(m, {1, 0}, {2, 2})), (Doubles{3, 4}));
  expect_refused("step must not be 0", [&] { ops::slice(x, {0}, {4}, {0}); });
  expect_refused("given twice", [&] { ops::slice(m, {0, 0}, {1, 1}, {}, {0, -2}); });
  expect_refused("lists must have equal lengths", [&] { ops::slice(m, {0, 0}, {1}); });
  expect_refused("lists must have at most 2 entries for (2, 3), got 3", [&] {
    ops::slice(m, {0, 0, 0});
  });
}

// The expected elements are those of Python's list(range(7))[start:stop:step].
TEST_F(Operators, SlicesTakeAnyStep) {
  const Tensor x = constant(count({7}));
  struct SliceCase {
    std::optional<int64_t> start, stop, step;
    Doubles want;
  };
  const int64_t max = std::numeric_limits<int64_t>::max();
  const SliceCase rows[] = {{{}, {}, 2, {0, 2, 4, 6}},
                            {{}, {}, 3, {0, 3, 6}},
                            {1, {}, 2, {1, 3, 5}},
                            {1, 6, 2, {1, 3, 5}},
                            {{}, {}, -2, {6, 4, 2, 0}},
                            {5, {}, -2, {5, 3, 1}},
                            {5, 0, -2, {5, 3, 1}},
                            {{}, 1, -3, {6, 3}},
                            {-1, -8, -3, {6, 3, 0}},
                            {-100, 100, 5, {0, 5}},
                            {100, -100, -4, {6, 2}},
                            {6, 6, 2, {}},
                            {2, 1, 3, {}},
                            {3, {}, 100, {3}},
                            {3, {}, -100, {3}},
                            {{}, {}, max, {0}},
                            {{}, {}, -max - 1, {6}}};
  for (const SliceCase& r : rows) {
    EXPECT_EQ(values(ops::slice(x, {r.start}, {r.stop}, {r.step})), r.want)
        << r.start.value_or(-99) << ":" << r.stop.value_or(-99) << ":" << *r.step;
  }
  EXPECT_EQ(values(ops::slice(constant(count({3, 4})), {std::nullopt, 3}, {}, {2, -2})),
            (Doubles{3, 1, 11, 9}));
}

TEST_F(Operators, ComposedShapeFunctionsFollowNumpy) {
  const Tensor x = constant(count({2, 3, 4}));
  EXPECT_EQ(ops::unsqueeze(x, 0).shape(), (Shape{1, 2, 3, 4}));
  EXPECT_EQ(ops::unsqueeze(x, -1).shape(), (Shape{2, 3, 4, 1}));
  EXPECT_EQ(ops::unsqueeze(x, {0, 2, -1}).shape(), (Shape{1, 2, 1, 3, 4, 1}));
  expect_refused("unsqueeze: axis -2 is given twice", [&] { ops::unsqueeze(x, {3, -2}); });
  expect_refused("unsqueeze: axis 4 is outside [-4, 4)", [&] { ops::unsqueeze(x, 4); });

  EXPECT_EQ(ops::flatten(x, 1).shape(), (Shape{2, 12}));
  EXPECT_EQ(ops::flatten(x, 0, -2).shape(), (Shape{6, 4}));
  EXPECT_EQ(ops::flatten(x, 1, 1).shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(ops::flatten(constant(count({})), 0).shape(), (Shape{1}));
  expect_refused("flatten: start must not exceed end, got axes 2 and 0 of (2, 3, 4)",
                 [&] { ops::flatten(x, 2, 0); });

  const Tensor m = constant(count({2, 3}));
  EXPECT_EQ(values(ops::swap_axes(m, 0, -1)), (Doubles{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(ops::swap_axes(x, 2, 1).shape(), (Shape{2, 4, 3}));
  expect_refused("swap_axes: axis 2 is outside [-2, 2)", [&] { ops::swap_axes(m, 0, 2); });

  EXPECT_EQ(values(ops::select(m, 1)), (Doubles{3, 4, 5}));
  EXPECT_EQ(values(ops::select(m, -1, 1)), (Doubles{2, 5}));
  EXPECT_EQ(ops::select(x, 0, -2).shape(), (Shape{2, 4}));
  expect_refused("select: index must be in [-2, 2) on axis 0 of (2, 3), got 2",
                 [&] { ops::select(m, 2); });

  EXPECT_EQ(values(ops::expand(ops::unsqueeze(m, 0), {2, -1, 3})),
            (Doubles{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ops::expand(m, {4, -1, -1}).shape(), (Shape{4, 2, 3}));
  expect_refused("expand: -1 on axis 0 of (-1, 2, 3) requires an axis of (2, 3)", [&] {
    ops::expand(m, {-1, 2, 3});
  });

  EXPECT_EQ(values(ops::stack({m, m + 10})), (Doubles{0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(values(ops::stack({m, m + 10}, -1)),
            (Doubles{0, 10, 1, 11, 2, 12, 3, 13, 4, 14, 5, 15}));
  expect_refused("stack: tensor 1 must have the shape of tensor 0, (2, 3), got (2, 3, 4)", [&] {
    ops::stack({m, x});
  });
  expect_refused("stack: requires at least one tensor", [] { ops::stack({}); });
}

TEST_F(Operators, ScalarsHaveOneAxis) {
  const Tensor x = constant(HostTensor::scalar(3));
  for (const int64_t axis : {0, -1}) {
    for (const bool keepdims : {false, true}) {
      const ops::ReduceOptions options{.axes = {axis}, .keepdims = keepdims};
      for (const auto& reduce : {ops::sum, ops::mean, ops::max, ops::min, ops::prod}) {
        EXPECT_EQ(run(reduce(x, options)).spec(), f32_spec({}));
        EXPECT_EQ(values(reduce(x, options)), Doubles{3});
      }
      EXPECT_EQ(values(ops::argmax(x, {.axis = axis, .keepdims = keepdims})), Doubles{0});
    }
    EXPECT_EQ(values(ops::softmax(x, axis)), Doubles{1});
  }
  expect_refused("sum (C2): axis must be in [-1, 1) for shape (), got 1",
                 [&] { ops::sum(x, {.axes = {1}}); });
  expect_refused("axis -1 is given twice", [&] { ops::sum(x, {.axes = {0, -1}}); });
}

TEST_F(Operators, EmptyTensorsReduceAsInNumpy) {
  const Tensor x = constant(HostTensor(f32_spec({2, 0})));
  const ops::ReduceOptions rows{.axes = {1}};
  EXPECT_EQ(values(ops::sum(x, rows)), (Doubles{0, 0}));
  EXPECT_EQ(values(ops::prod(x, rows)), (Doubles{1, 1}));
  for (const double y : values(ops::mean(x, rows))) EXPECT_TRUE(std::isnan(y));
  EXPECT_TRUE(std::isnan(values(ops::mean(x))[0]));
  EXPECT_EQ(values(ops::logsumexp(x)), Doubles{-kInf});
  EXPECT_EQ(values(ops::max(x, {.axes = {0}})), Doubles{});
  expect_refused("max (C3): must have at least one element to reduce, got shape (2, 0)",
                 [&] { ops::max(x, rows); });
  expect_refused("min (C3): must have at least one element", [&] { ops::min(x); });
}

TEST_F(Operators, ConcatAndSplitAreInverse) {
  const Tensor x = constant(count({2, 5}));
  const Tensors parts = ops::split(x, {1, 4}, 1);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(values(parts[0]), (Doubles{0, 5}));
  EXPECT_EQ(values(ops::concat({parts[0], parts[1]}, 1)), values(x));
  EXPECT_EQ(ops::split(x, 5, -1).size(), 5u);
  expect_refused("parts must be positive and divide axis 1 of (2, 5), got 2",
                 [&] { ops::split(x, 2, 1); });
  expect_refused("call split(t, sizes, axis), for example with sizes {2, 2, 1}",
                 [&] { ops::split(x, 3, 1); });
  expect_refused("split (C3)", [&] { ops::split(x, {2, 2}, 1); });
}

TEST_F(Operators, MatmulFollowsNumpyForVectorsAndBatches) {
  const Tensor m = constant(count({2, 3}));
  const Tensor v = constant(floats({3}, {1, 10, 100}));
  EXPECT_EQ(values(ops::matmul(m, v)), (Doubles{210, 543}));
  EXPECT_EQ(ops::matmul(v, v).shape(), Shape{});
  EXPECT_EQ(values(ops::matmul(v, v)), (Doubles{10101}));
  const Tensor batch = constant(count({4, 1, 2, 3}));
  EXPECT_EQ(ops::matmul(batch, constant(count({5, 3, 7}))).shape(), (Shape{4, 5, 2, 7}));
  EXPECT_EQ(ops::matmul(v, constant(count({5, 3, 7}))).shape(), (Shape{5, 7}));
}

TEST_F(Operators, TransposedMatmulEqualsMatmulOfTransposes) {
  const Tensor a = constant(count({2, 3, 4}));
  const Tensor b = constant(count({2, 5, 3}));
  const auto flip = [](const Tensor& t) { return ops::transpose(t, {0, 2, 1}); };
  const HostTensor both = run(ops::matmul(a, b, {.lhs_transposed = true, .rhs_transposed = true}));
  EXPECT_TRUE(both.same_bits(run(ops::matmul(flip(a), flip(b)))));
}

TEST_F(Operators, ReduceToSumsBroadcastAxes) {
  const Tensor x = constant(floats({2, 3}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values(ops::reduce_to(x, {3})), (Doubles{5, 7, 9}));
  EXPECT_EQ(values(ops::reduce_to(x, {2, 1})), (Doubles{6, 15}));
  EXPECT_EQ(values(ops::reduce_to(x, {1})), (Doubles{21}));
  EXPECT_EQ(values(ops::reduce_to(x, {})), (Doubles{21}));
  EXPECT_EQ(ops::reduce_to(x, {2, 3}), x);
  EXPECT_EQ(ops::reduce_to(constant(count({4, 2, 3})), {1, 3}).shape(), (Shape{1, 3}));
  expect_refused("does not broadcast", [&] { ops::reduce_to(x, {2, 2}); });
  expect_refused("does not broadcast", [&] { ops::reduce_to(x, {1, 2, 3}); });
}

TEST_F(Operators, SumsKeepTheCanonicalOrder) {
  // Partial 0 sums 1e8, -1e8 and 1; partial 1 sums only 1. Summing in order would lose the first 1.
  std::vector<float> x(33, 0.0f);
  x[0] = 1e8f;
  x[1] = 1.0f;
  x[16] = -1e8f;
  x[32] = 1.0f;
  EXPECT_EQ(values(ops::sum(constant(floats({33}, x)))), (Doubles{2}));
}

TEST_F(Operators, MaximaAndMinimaPropagateNan) {
  const Tensor x = constant(floats({2, 2}, {1, kNan, 3, 2}));
  for (const Tensor& y : {ops::max(x, {.axes = {1}}), ops::min(x, {.axes = {1}})}) {
    EXPECT_TRUE(std::isnan(values(y)[0]));
  }
  EXPECT_EQ(values(ops::max(constant(ints({3}, {-5, -2, -9})))), (Doubles{-2}));
}

TEST_F(Operators, IntegerSumsWrapAround) {
  EXPECT_EQ(values(ops::sum(constant(ints({2}, {2147483647, 1})))), (Doubles{-2147483648.0}));
}

TEST_F(Operators, LogSumExpDoesNotOverflow) {
  EXPECT_NEAR(values(ops::logsumexp(constant(floats({2}, {1000, 1000}))))[0], 1000 + std::log(2),
              1e-4);
  EXPECT_EQ(values(ops::logsumexp(constant(floats({2}, {-kInf, -kInf}))))[0], -kInf);
}

TEST_F(Operators, ArgmaxTakesTheFirstAndNan) {
  EXPECT_EQ(values(ops::argmax(constant(floats({4}, {1, 3, 3, 2})))), (Doubles{1}));
  EXPECT_EQ(values(ops::argmin(constant(floats({4}, {1, 0, kNan, 2})))), (Doubles{2}));
  EXPECT_EQ(values(ops::argmax(constant(count({2, 3})), {.flatten = true})), (Doubles{5}));
  EXPECT_EQ(ops::argmax(constant(count({2, 3})), {.axis = 1, .keepdims = true}).shape(),
            (Shape{2, 1}));
}

TEST_F(Operators, GatherOutsideIsNanOrZero) {
  const Tensor x = constant(count({3}));
  const Tensor at = constant(ints({3}, {2, 3, -1}));
  const Doubles y = values(ops::gather(x, at));
  EXPECT_EQ(y[0], 2);
  EXPECT_TRUE(std::isnan(y[1]) && std::isnan(y[2]));
  EXPECT_EQ(values(ops::gather(x, at, {.zero_out_of_range = true})), (Doubles{2, 0, 0}));
}

TEST_F(Operators, OnehotPlacesTheNewAxis) {
  const Tensor at = constant(ints({2}, {2, 0}));
  const Tensor off_on = constant(floats({2}, {-1, 1}));
  EXPECT_EQ(values(ops::onehot(at, off_on, {.classes = 3})), (Doubles{-1, -1, 1, 1, -1, -1}));
  EXPECT_EQ(values(ops::onehot(at, off_on, {.classes = 3, .axis = 0})),
            (Doubles{-1, 1, -1, -1, 1, -1}));
}

TEST_F(Operators, SoftmaxDoesNotOverflow) {
  EXPECT_EQ(values(ops::softmax(constant(floats({2}, {500, 500})))), (Doubles{0.5, 0.5}));
  EXPECT_NEAR(values(ops::log_softmax(constant(floats({2}, {0, -500}))))[1], -500, 1e-3);
}

TEST_F(Operators, NllLossOfIgnoredAndStrangeLabels) {
  const Tensor p = constant(floats({3, 2}, {0.5, 0.5, 0.25, 0.75, 1, 0}));
  const auto loss = [&](const std::vector<int32_t>& labels, ops::NllLossOptions o) {
    return values(ops::nll_loss(p, constant(ints({3}, labels)), o));
  };
  const double a = std::log(2.0);
  const double b = std::log(4.0);
  EXPECT_NEAR(loss({0, 0, 0}, {})[0], (a + b) / 3, 1e-6);
  EXPECT_NEAR(loss({0, 0, 0}, {.reduction = ops::LossReduction::kSum})[0], a + b, 1e-6);
  EXPECT_NEAR(loss({0, 0, 9}, {.has_ignore_index = true, .ignore_index = 9})[0], (a + b) / 2, 1e-6);
  EXPECT_EQ(loss({9, 9, 9}, {.has_ignore_index = true, .ignore_index = 9}), (Doubles{0}));
  const Doubles each = loss({0, 2, 1}, {.reduction = ops::LossReduction::kNone});
  EXPECT_NEAR(each[0], a, 1e-6);
  EXPECT_TRUE(std::isnan(each[1])) << "a label out of range is noticed";
  EXPECT_NEAR(each[2], 126 * a, 1e-4) << "a zero probability counts as the least normal float";
  EXPECT_TRUE(std::isnan(loss({0, -1, 0}, {})[0]));
}

TEST_F(Operators, CrossEntropyWithGradIsTheLossAndItsGradient) {
  const Tensor logits = constant(floats({2, 3}, {1, 2, 3, 0, -1, 4}));
  const Tensor labels = constant(ints({2}, {2, 1}));
  const auto [loss, d] = ops::cross_entropy_with_grad(logits, labels, {.loss_grad = 2});
  EXPECT_NEAR(values(loss)[0], values(ops::cross_entropy(logits, labels))[0], 1e-6);
  const Doubles p = values(ops::softmax(logits));
  const Doubles dx = values(d);
  for (size_t i = 0; i < dx.size(); ++i) {
    const bool label = i == 2 || i == 4;
    EXPECT_NEAR(dx[i], p[i] - label, 1e-6) << "times the loss gradient 2, divided by 2 samples";
  }
}

TEST_F(Operators, ErrorsNameTheCallersLine) {
  const Tensor x = constant(count({2}));
  const std::string text = refusal([&] { ops::matmul(x, constant(count({3}))); });
  EXPECT_NE(text.find("matmul (C4)"), std::string::npos) << text;
  EXPECT_NE(text.find("operator_semantics_test.cc:"), std::string::npos) << text;
}

// emplace_back makes the elements of such a vector in a header of the standard library.
TEST_F(Operators, FunctionsOfVectorsNameTheCallersLine) {
  std::vector<TensorArg> ts;
  ts.emplace_back(constant(count({2, 2})));
  ts.emplace_back(constant(count({3, 3})));
  const std::function<void()> calls[] = {[&] { ops::concat(ts); }, [&] { ops::concat_(ts); },
                                         [&] { ops::add_n(ts); }, [&] { ops::maximum(ts); },
                                         [&] { ops::minimum(ts); }};
  for (const auto& call : calls) {
    expect_refused("at operator_semantics_test.cc:", call);
  }
}

// A list of one number holds for all spatial axes, as in the options of layers.
TEST_F(Operators, OneNumberIsForAllAxesOfAWindow) {
  const Tensor x = constant(count({1, 2, 7, 6})), w = constant(count({3, 2, 2, 3}));
  const auto same = [&](const Tensor& one, const Tensor& each) {
    const HostTensor first = run(one);
    EXPECT_TRUE(first.same_bits(run(each))) << to_string(first.spec());
  };
  same(ops::conv(x, w, {.stride = {2}, .padding = {1}, .dilation = {2}}),
       ops::conv(x, w, {.stride = {2, 2}, .padding = {1, 1, 1, 1}, .dilation = {2, 2}}));
  const Tensor back = constant(count({2, 3, 2, 2}));
  same(ops::conv_transpose(x, back, {.stride = {3}, .padding = {1}, .output_padding = {2}}),
       ops::conv_transpose(x, back,
                           {.stride = {3, 3}, .padding = {1, 1}, .output_padding = {2, 2}}));
  same(ops::max_pool(x, {.kernel = {3}, .stride = {2}, .padding = {1}}),
       ops::max_pool(x, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 1, 1}}));
  same(ops::average_pool(x, {.kernel = {2}}), ops::average_pool(x, {.kernel = {2, 2}}));
  EXPECT_NE(refusal([&] {
              ops::conv(x, w, {.stride = {1, 1, 1}});
            }).find("or one for all"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice
