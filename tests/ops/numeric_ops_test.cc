// Tests elementwise, updating and random operators beyond the generated tests: operators on
// handles, composed ops, tensors as hyperparameters, masks and seeds, printed text.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "sluice/interp/interpreter.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/print_tensor.h"
#include "sluice/ops/random.h"
#include "sluice/ops/sparse_accumulate.h"
#include "sluice/ops/updates.h"

namespace sluice {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kInfinity = std::numeric_limits<float>::infinity();

HostTensor floats(const std::vector<float>& values) {
  return HostTensor::of<float>({static_cast<int64_t>(values.size())}, f32, values);
}

std::vector<float> values_of(const HostTensor& t) {
  const auto v = t.as<float>();
  return {v.begin(), v.end()};
}

/// Runs `body(graph, inputs…)` on arrays.
template <typename Body>
std::vector<HostTensor> evaluate(const std::vector<HostTensor>& inputs, const Body& body,
                                 Precision precision = Precision::kFloat) {
  Ir ir;
  Graph& graph = ir.create_empty_graph("test");
  Tensors handles;
  for (const HostTensor& t : inputs) handles.push_back(graph.input(t.spec(), "x"));
  graph.set_outputs(body(handles));
  return Interpreter(ir, precision).evaluate(graph, inputs);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Operators, MixTensorsAndNumbers) {
  const auto y = evaluate({floats({1, 2}), floats({10, 20})}, [](const Tensors& x) {
    return Tensors{x[0] + x[1], x[0] - 1, 3 - x[0], x[0] * 2.5, 2.0 / x[0], -x[0] / x[1], 1 + x[0]};
  });
  EXPECT_EQ(values_of(y[0]), (std::vector<float>{11, 22}));
  EXPECT_EQ(values_of(y[1]), (std::vector<float>{0, 1}));
  EXPECT_EQ(values_of(y[2]), (std::vector<float>{2, 1}));
  EXPECT_EQ(values_of(y[3]), (std::vector<float>{2.5f, 5}));
  EXPECT_EQ(values_of(y[4]), (std::vector<float>{2, 1}));
  EXPECT_EQ(values_of(y[5]), (std::vector<float>{-0.1f, -0.1f}));
  EXPECT_EQ(values_of(y[6]), (std::vector<float>{2, 3}));
}

TEST(Operators, NumbersTakeTheTensorsDtype) {
  Ir ir;
  Graph& graph = ir.create_empty_graph("test");
  const Tensor x = graph.input({Shape{2}, i32, {}}, "x");
  EXPECT_EQ((x * 3).dtype(), i32);
}

TEST(Operators, TakeNumbersWhereverAnOperandMayBeOne) {
  using Floats = std::vector<float>;
  struct NumberCase {
    std::function<Tensor(const Tensor&)> body;
    Floats want;
  };
  const NumberCase rows[] = {
      {[](const Tensor& x) { return ops::add(x, 1); }, {0, 2, 4}},
      {[](const Tensor& x) { return ops::add(1, x); }, {0, 2, 4}},
      {[](const Tensor& x) { return ops::sub(x, 1); }, {-2, 0, 2}},
      {[](const Tensor& x) { return ops::sub(1, x); }, {2, 0, -2}},
      {[](const Tensor& x) { return ops::mul(x, 2); }, {-2, 2, 6}},
      {[](const Tensor& x) { return ops::mul(2, x); }, {-2, 2, 6}},
      {[](const Tensor& x) { return ops::div(x, 2); }, {-0.5, 0.5, 1.5}},
      {[](const Tensor& x) { return ops::div(3, x); }, {-3, 3, 1}},
      {[](const Tensor& x) { return ops::pow(x, 2); }, {1, 1, 9}},
      {[](const Tensor& x) { return ops::pow(2, x); }, {0.5, 2, 8}},
      {[](const Tensor& x) { return ops::maximum(x, 0); }, {0, 1, 3}},
      {[](const Tensor& x) { return ops::maximum(2.5, x); }, {2.5, 2.5, 3}},
      {[](const Tensor& x) { return ops::minimum(x, 2); }, {-1, 1, 2}},
      {[](const Tensor& x) { return ops::minimum(0, x); }, {-1, 0, 0}},
      {[](const Tensor& x) { return ops::where(ops::greater(x, 0.5), x, 0.0); }, {0, 1, 3}},
      {[](const Tensor& x) { return ops::where(ops::greater(0.5, x), 7, x); }, {7, 1, 3}},
      {[](const Tensor& x) { return ops::add_(ops::identity(x), 1); }, {0, 2, 4}}};
  for (size_t i = 0; i < std::size(rows); ++i) {
    const auto y = evaluate({floats({-1, 1, 3})},
                            [&](const Tensors& x) { return Tensors{rows[i].body(x[0])}; });
    EXPECT_EQ(values_of(y[0]), rows[i].want) << "row " << i;
  }
}

TEST(Operators, CompareWithNumbers) {
  using Compare = std::function<Tensor(const Tensor&)>;
  const std::pair<Compare, std::vector<double>> rows[] = {
      {[](const Tensor& x) { return ops::equal(x, 1); }, {0, 1, 0}},
      {[](const Tensor& x) { return ops::equal(1, x); }, {0, 1, 0}},
      {[](const Tensor& x) { return ops::not_equal(x, 1); }, {1, 0, 1}},
      {[](const Tensor& x) { return ops::not_equal(1, x); }, {1, 0, 1}},
      {[](const Tensor& x) { return ops::greater(x, 1); }, {0, 0, 1}},
      {[](const Tensor& x) { return ops::greater(1, x); }, {1, 0, 0}},
      {[](const Tensor& x) { return ops::greater_equal(x, 1); }, {0, 1, 1}},
      {[](const Tensor& x) { return ops::greater_equal(1, x); }, {1, 1, 0}},
      {[](const Tensor& x) { return ops::less(x, 1); }, {1, 0, 0}},
      {[](const Tensor& x) { return ops::less(1, x); }, {0, 0, 1}},
      {[](const Tensor& x) { return ops::less_equal(x, 1); }, {1, 1, 0}},
      {[](const Tensor& x) { return ops::less_equal(1, x); }, {0, 1, 1}},
      {[](const Tensor& x) { return ops::logical_and(x, true); }, {1, 1, 1}},
      {[](const Tensor& x) { return ops::logical_and(false, x); }, {0, 0, 0}},
      {[](const Tensor& x) { return ops::logical_or(ops::less(x, 0), false); }, {1, 0, 0}},
      {[](const Tensor& x) { return ops::logical_or(true, x); }, {1, 1, 1}}};
  for (size_t i = 0; i < std::size(rows); ++i) {
    const auto y = evaluate({HostTensor::of<int32_t>({3}, i32, {-1, 1, 3})},
                            [&](const Tensors& x) { return Tensors{rows[i].first(x[0])}; });
    EXPECT_EQ(y[0].dtype(), boolean);
    EXPECT_EQ(y[0].to_doubles(), rows[i].second) << "row " << i;
  }
  const std::string text = error_of([] {
    Ir ir;
    ops::greater(ir.create_empty_graph("test").input({Shape{2}, u8, {}}, "x"), 256);
  });
  EXPECT_NE(text.find("a whole number in [0, 255], got 256"), std::string::npos) << text;
}

TEST(Operators, RefuseNumbersThatTheDtypeDoesNotTake) {
  struct NumberCase {
    DType dtype;
    double value;
    std::string message;  // Empty if the number is accepted.
  };
  const std::string u8_range = "a whole number in [0, 255]";
  const std::string i32_range = "a whole number in [-2147483648, 2147483647]";
  const std::string u32_range = "a whole number in [0, 4294967295]";
  const std::vector<NumberCase> rows{
      {u8, 255, ""},
      {u8, -0.0, ""},
      {u8, -3, u8_range + ", got -3"},
      {u8, 256, u8_range + ", got 256"},
      {i32, -2147483648.0, ""},
      {i32, 3e9, i32_range + ", got 3000000000"},
      {i32, -2147483649.0, i32_range},
      {i32, 0.5, i32_range + ", got 0.5"},
      {i32, kNan, i32_range + ", got nan"},
      {i32, kInfinity, i32_range + ", got inf"},
      {u32, 4294967295.0, ""},
      {u32, 4294967296.0, u32_range},
      {u32, -1, u32_range + ", got -1"},
      {boolean, 1, ""},
      {boolean, 2, "must be 0 or 1, got 2"},
      {f16, 65519, ""},
      {f16, 0.1, ""},
      {f16, -kInfinity, ""},
      {f16, kNan, ""},
      {f16, 65520, "a number of float16's range, got 65520"},
      {bf16, 1e38, ""},
      {bf16, 3.4e38, "bfloat16's range"},
      {f32, 16777217, ""},
      {f32, 1e39, "float32's range"},
  };
  for (const NumberCase& row : rows) {
    Ir ir;
    const Tensor x = ir.create_empty_graph("test").input({Shape{2}, row.dtype, {}}, "x");
    const std::string text = error_of([&] { ops::scalar_like(x, row.value); });
    if (row.message.empty()) {
      EXPECT_EQ(text, "nothing was thrown") << row.value;
    } else {
      EXPECT_NE(text.find(row.message), std::string::npos) << text;
      EXPECT_NE(text.find("'x'"), std::string::npos) << text;
    }
    EXPECT_EQ(error_of([&] {
                ops::init(x.graph(), {{2}, row.dtype, {}}, row.value);
              }) == text,
              row.message.empty());
  }
}

TEST(Operators, PlusEqualsWritesTheStorage) {
  const auto y = evaluate({floats({1, 2})}, [](const Tensors& x) {
    Tensor w = x[0];
    w += w.graph().scalar(5, f32);
    EXPECT_NE(w, x[0]);
    return Tensors{ops::identity(x[0]), w};
  });
  EXPECT_EQ(values_of(y[0]), (std::vector<float>{6, 7}));
  EXPECT_EQ(values_of(y[1]), (std::vector<float>{6, 7}));
  const auto z = evaluate({floats({1, 2})}, [](const Tensors& x) {
    Tensor w = x[0];
    w += 5;
    return Tensors{ops::identity(x[0])};
  });
  EXPECT_EQ(values_of(z[0]), (std::vector<float>{6, 7}));
}

TEST(Operators, ErrorsNameTheLine) {
  Ir ir;
  Graph& graph = ir.create_empty_graph("test");
  const Tensor a = graph.input(f32_spec({2}), "a");
  const Tensor b = graph.input(f32_spec({3}), "b");
  const int line = __LINE__ + 1;
  const std::string text = error_of([&] { a + b; });
  EXPECT_NE(text.find(fmt::format("numeric_ops_test.cc:{}", line)), std::string::npos) << text;
}

TEST(Arithmetic, IntegerDivisionFloors) {
  const auto i = [](const std::vector<int32_t>& v) {
    return HostTensor::of<int32_t>({static_cast<int64_t>(v.size())}, i32, v);
  };
  const auto y =
      evaluate({i({7, -7, 7, -7, 5, INT32_MIN}), i({2, 2, -2, -2, 0, -1})}, [](const Tensors& x) {
        return Tensors{x[0] / x[1], ops::neg(x[0]), ops::abs(x[0])};
      });
  EXPECT_TRUE(y[0].same_bits(i({3, -4, -4, 3, 0, INT32_MIN})));
  EXPECT_TRUE(y[1].same_bits(i({-7, 7, -7, 7, -5, INT32_MIN})));
  EXPECT_TRUE(y[2].same_bits(i({7, 7, 7, 7, 5, INT32_MIN})));
}

TEST(Arithmetic, NanPasses) {
  const auto y = evaluate({floats({kNan, 1, kNan}), floats({1, kNan, kNan})}, [](const Tensors& x) {
    return Tensors{ops::maximum(x[0], x[1]), ops::minimum(x[0], x[1]), ops::relu(x[0] + x[1]),
                   ops::clip(x[0] + x[1], {.min = 0, .max = 1}), ops::gelu(x[0] + x[1])};
  });
  for (const HostTensor& t : y) {
    for (const float v : values_of(t)) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(Compare, LogicalOpsCastFirst) {
  const auto y = evaluate({floats({0, 2, -0.0f}), floats({1, kNan, 3})}, [](const Tensors& x) {
    const size_t before = x[0].graph().ops().size();
    const Tensor both = ops::logical_and(x[0], x[1]);
    EXPECT_EQ(x[0].graph().ops().size(), before + 3);
    return Tensors{both, ops::where(x[0], x[0], x[1])};
  });
  EXPECT_EQ(y[0].to_doubles(), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(values_of(y[1]), (std::vector<float>{1, 2, 3}));
}

TEST(Updates, ScaledAddMixesDtypesAndTensorFactors) {
  const HostTensor w = floats({1, 2, 3});
  const HostTensor u = floats({0.5f, 0.25f, -1}).cast(f16);
  const auto y = evaluate({w, u, HostTensor::scalar(-0.1f)}, [](const Tensors& x) {
    const Tensor fixed = ops::scaled_add(x[0], x[1], 1.0, -0.1);
    const Tensor updated = ops::scaled_add_(x[0], x[1], 1.0, x[2]);
    EXPECT_EQ(updated.dtype(), f32);
    return Tensors{fixed, updated};
  });
  EXPECT_TRUE(y[0].same_bits(y[1]));
  EXPECT_EQ(y[0].as<float>()[0], std::fma(-0.1f, 0.5f, 1.0f));
}

TEST(Updates, RunningMeanResetsWithItsCounter) {
  const std::vector<float> xs{3, 8, 1, 4};
  std::vector<HostTensor> inputs{floats({-7})};
  for (const float x : xs) inputs.push_back(floats({x}));
  const auto y = evaluate(inputs, [&](const Tensors& x) {
    Tensor mean = x[0];
    for (size_t s = 0; s < xs.size(); ++s) {
      mean =
          ops::accumulate_mean_(mean, x[s + 1], mean.graph().scalar(static_cast<double>(s), f32));
    }
    return Tensors{mean};
  });
  EXPECT_NEAR(values_of(y[0])[0], 4, 1e-6);
}

TEST(Updates, ZeroWritesZerosOverNan) {
  const auto y = evaluate({floats({kNan, kInfinity})},
                          [](const Tensors& x) { return Tensors{ops::accumulator_zero_(x[0])}; });
  EXPECT_EQ(values_of(y[0]), (std::vector<float>{0, 0}));
}

TEST(Updates, AdamFollowsItsFormula) {
  constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-5, kDecay = 0.01, kRate = 0.1;
  constexpr int kSteps = 4;
  const auto run = [&](bool tensors) {
    return evaluate({floats({0.5f}), floats({0}), floats({0}), HostTensor::scalar(0),
                     HostTensor::scalar(0.999f)},
                    [&](const Tensors& x) {
                      Tensor w = x[0], m = x[1], v = x[2];
                      for (int s = 0; s < kSteps; ++s) {
                        const Tensor g = w * w - 1;
                        m = ops::accumulate_moving_average_(m, g, kBeta1);
                        v = ops::accumulate_moving_average_square_(v, g, kBeta2);
                        const Tensor u =
                            ops::adam_updater(m, v,
                                              {.weight = w,
                                               .time_step = x[3],
                                               .weight_decay = kDecay,
                                               .beta1 = kBeta1,
                                               .beta2 = tensors ? ops::HyperArg(x[4]) : kBeta2,
                                               .epsilon = kEpsilon});
                        w = ops::scaled_add_(w, u, 1.0, -kRate);
                      }
                      return Tensors{w, ops::identity(x[3])};
                    });
  };
  double w = 0.5, m = 0, v = 0;
  for (int t = 1; t <= kSteps; ++t) {
    const double g = w * w - 1;
    m = kBeta1 * m + (1 - kBeta1) * g;
    v = kBeta2 * v + (1 - kBeta2) * g * g;
    const double u =
        m / (1 - std::pow(kBeta1, t)) / (std::sqrt(v / (1 - std::pow(kBeta2, t))) + kEpsilon) +
        kDecay * w;
    w -= kRate * u;
  }
  for (const bool tensors : {false, true}) {
    const auto y = run(tensors);
    EXPECT_NEAR(values_of(y[0])[0], w, 1e-5);
    EXPECT_EQ(values_of(y[1])[0], kSteps);
  }
}

TEST(Updates, AdamUpdaterHasTheDocumentedDtypeAndErrors) {
  Ir ir;
  Graph& graph = ir.create_empty_graph("test");
  const Tensor m = graph.input({Shape{2}, f16, {}}, "m");
  const Tensor v = graph.input(f32_spec({2}), "v");
  const Tensor w = graph.input(f32_spec({2}), "w");
  const Tensor step = graph.input(f32_spec({}), "step");
  EXPECT_EQ(ops::adam_updater(m, v).dtype(), f16);
  EXPECT_EQ(ops::adam_updater(m, v, {.weight = w, .weight_decay = 0.0}).dtype(), f16);
  EXPECT_EQ(ops::adam_updater(m, v, {.weight = w, .weight_decay = 0.1}).dtype(), f32);
  EXPECT_NE(error_of([&] {
              ops::adam_updater(m, v, {.weight_decay = 0.1});
            }).find("weight_decay requires weight"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              ops::adam_updater(m, v, {.time_step = step, .beta1 = 0.9});
            }).find("beta1 and beta2"),
            std::string::npos);
}

TEST(Updates, AdamaxFollowsItsFormula) {
  constexpr double kBeta1 = 0.8, kBeta2 = 0.9, kEpsilon = 1e-5, kDecay = 0.01, kRate = 0.1;
  constexpr int kSteps = 4;
  const auto y = evaluate({floats({0.5f}), floats({0}), floats({0}), HostTensor::scalar(0)},
                          [&](const Tensors& x) {
                            Tensor w = x[0], m = x[1], v = x[2];
                            for (int s = 0; s < kSteps; ++s) {
                              const Tensor g = w * w - 1;
                              m = ops::accumulate_moving_average_(m, g, kBeta1);
                              v = ops::accumulate_infinity_(v, g, kBeta2);
                              const Tensor u = ops::adamax_updater(m, v,
                                                                   {.weight = w,
                                                                    .time_step = x[3],
                                                                    .weight_decay = kDecay,
                                                                    .beta1 = kBeta1,
                                                                    .epsilon = kEpsilon});
                              w = ops::scaled_add_(w, u, 1.0, -kRate);
                            }
                            return Tensors{w, v, ops::identity(x[3])};
                          });
  double w = 0.5, m = 0, v = 0;
  for (int t = 1; t <= kSteps; ++t) {
    const double g = w * w - 1;
    m = kBeta1 * m + (1 - kBeta1) * g;
    v = std::max(kBeta2 * v, std::abs(g));
    w -= kRate * (m / (1 - std::pow(kBeta1, t)) / (v + kEpsilon) + kDecay * w);
  }
  EXPECT_NEAR(values_of(y[0])[0], w, 1e-6);
  EXPECT_NEAR(values_of(y[1])[0], v, 1e-6);
  EXPECT_EQ(values_of(y[2])[0], kSteps);
}

TEST(Updates, InfinityNormKeepsNan) {
  const auto y = evaluate({floats({kNan, 1, 4}), floats({1, kNan, -1})}, [](const Tensors& x) {
    return Tensors{ops::accumulate_infinity_(x[0], x[1], 0.5)};
  });
  EXPECT_TRUE(std::isnan(values_of(y[0])[0]));
  EXPECT_TRUE(std::isnan(values_of(y[0])[1]));
  EXPECT_EQ(values_of(y[0])[2], 2);
}

TEST(Updates, FormsOfAdamHaveItsDtypesAndErrors) {
  Ir ir;
  Graph& graph = ir.create_empty_graph("test");
  const Tensor m = graph.input({Shape{2}, f16, {}}, "m");
  const Tensor v = graph.input(f32_spec({2}), "v");
  const Tensor step = graph.input(f32_spec({}), "step");
  EXPECT_EQ(ops::lamb_updater(m, v).dtype(), f16);
  EXPECT_EQ(ops::adamax_updater(m, v, {.time_step = step}).dtype(), f16);
  EXPECT_EQ(
      graph.ops().back().attrs,
      to_attrs(ops::AdamUpdaterOptions{.kind = "adamax", .beta1 = 0.9, .operands = "time_step"}));
  EXPECT_NE(
      error_of([&] { ops::adamax_updater(m, v, {}); }).find("adamax_updater: requires time_step"),
      std::string::npos);
  EXPECT_NE(error_of([&] {
              ops::lamb_updater(m, v, {.weight_decay = 0.1});
            }).find("lamb_updater: weight_decay requires weight"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              ops::lamb_updater(m, v, {.time_step = step, .beta2 = 0.9});
            }).find("lamb_updater: time_step (bias correction) requires beta1 and beta2"),
            std::string::npos);
}

// Adds the same values as a dense gradient, without making one.
TEST(Updates, SparseAccumulateIsADenseOne) {
  const HostTensor table = HostTensor::of<float>({3, 2}, f32, {1, 2, 3, 4, 5, 6});
  const HostTensor x = HostTensor::of<float>({4, 2}, f32, {1, 1, 10, 20, 2, 2, 9, 9});
  const HostTensor at = HostTensor::of<int32_t>({4}, i32, {2, 0, 2, 3});
  const auto y = evaluate({table, table, x, at, HostTensor::scalar(0.5f)}, [](const Tensors& t) {
    ops::sparse_accumulate_(t[0], t[2], t[3], 0, t[4]);
    ops::accumulate_(t[1], ops::gather_grad(t[2], t[3], {.axis = 0, .size = 3}), 0.5);
    return Tensors{t[0], t[1]};
  });
  EXPECT_EQ(values_of(y[0]), (std::vector<float>{6, 12, 3, 4, 6.5f, 7.5f}));
  EXPECT_TRUE(y[0].same_bits(y[1]));
}

TEST(Updates, AdamVarUpdateScalesByTheNorms) {
  const auto run = [](float r1, float r2, double limit) {
    return values_of(
        evaluate({floats({1}), floats({2}), HostTensor::scalar(r1), HostTensor::scalar(r2)},
                 [&](const Tensors& x) {
                   return Tensors{ops::adam_var_update(x[0], x[1], x[2], x[3], 0.5, limit)};
                 })[0])[0];
  };
  EXPECT_EQ(run(16, 4, HUGE_VAL), -1);  // 1 − 0.5·(4/2)·2
  EXPECT_EQ(run(16, 4, 2), 0);
  EXPECT_EQ(run(0, 4, 2), 0);
  EXPECT_EQ(run(16, 0, 2), 0);
}

TEST(Random, DropoutKeepsItsShareAndItsMask) {
  constexpr int64_t kCount = 40000;
  const HostTensor ones = HostTensor::of<float>({kCount}, f32, std::vector<float>(kCount, 1));
  const HostTensor seed = HostTensor::of<uint32_t>({2}, u32, {5, 6});
  const auto y = evaluate({ones, seed}, [](const Tensors& x) {
    return Tensors{ops::dropout(x[0], x[1], 0.25), ops::dropout(x[0], x[1], 0.25),
                   ops::dropout(x[0], ops::fold_seed(x[1], "next"), 0.25)};
  });
  EXPECT_TRUE(y[0].same_bits(y[1]));
  EXPECT_FALSE(y[0].same_bits(y[2]));
  int64_t kept = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const float v = y[0].as<float>()[static_cast<size_t>(i)];
    EXPECT_EQ(v != 0, random_unit({5, 6}, static_cast<uint64_t>(i)) >= 0.25f);
    EXPECT_TRUE(v == 0 || v == 1 / 0.75f) << v;
    kept += v != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / kCount, 0.75, 0.01);
}

TEST(Random, ChunksMakeTheFullTensorsNumbers) {
  const HostTensor seed = HostTensor::of<uint32_t>({2}, u32, {1, 2});
  const auto y = evaluate({seed}, [](const Tensors& x) {
    ops::RandomNormalOptions chunk{.shape = {5}, .offset = 7};
    return Tensors{ops::random_normal(x[0], {12}),
                   ops::emit_one(ops::random_normal_def(), {x[0]}, chunk)};
  });
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(y[0].as<float>()[7 + i], y[1].as<float>()[i]);
}

TEST(Random, SeedsDiffer) {
  const HostTensor seed = HostTensor::of<uint32_t>({2}, u32, {1, 2});
  const HostTensor three = HostTensor::of<int32_t>({}, i32, {3});
  const auto y = evaluate({seed, three}, [](const Tensors& x) {
    Tensors seeds = ops::split_random_seed(x[0], 3);
    for (int64_t i = 0; i < 3; ++i) seeds.push_back(ops::fold_seed(x[0], i));
    seeds.push_back(ops::fold_seed(x[0], x[1]));
    seeds.push_back(ops::fold_seed(x[0], 3));
    return seeds;
  });
  EXPECT_TRUE(y[6].same_bits(y[7]));
  for (size_t i = 0; i < 7; ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(y[i].same_bits(y[j])) << i << " and " << j;
  }
}

TEST(PrintTensor, WritesWhatNumpyWrites) {
  using ops::array_text;
  EXPECT_EQ(array_text(HostTensor::scalar(2.5f)), "2.5");
  EXPECT_EQ(array_text(floats({1, 2.5f, -3.25f})), "[ 1.    2.5  -3.25]");
  EXPECT_EQ(array_text(floats({kNan, 1, -kInfinity})), "[ nan   1. -inf]");
  EXPECT_EQ(array_text(floats({1e-5f, 1})), "[1.e-05 1.e+00]");
  EXPECT_EQ(array_text(floats({0.1f, 1 / 3.0f})), "[0.1        0.33333334]");
  EXPECT_EQ(array_text(floats({})), "[]");
  EXPECT_EQ(array_text(HostTensor::of<int32_t>({2, 2}, i32, {1, -20, 3, 4})),
            "[[  1 -20]\n [  3   4]]");
  EXPECT_EQ(array_text(HostTensor::of<bool>({2}, boolean, {true, false})), "[ True False]");
  EXPECT_EQ(array_text(HostTensor::of<uint8_t>({1, 2, 1}, u8, {7, 8})), "[[[7]\n  [8]]]");
  std::vector<int32_t> counted(2000);
  for (size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<int32_t>(i);
  EXPECT_EQ(array_text(HostTensor::of<int32_t>({2000}, i32, counted)),
            "[   0    1    2 ... 1997 1998 1999]");
  counted.resize(30);
  EXPECT_EQ(array_text(HostTensor::of<int32_t>({30}, i32, counted), {.max_line_width = 30}),
            "[ 0  1  2  3  4  5  6  7  8\n  9 10 11 12 13 14 15 16 17\n 18 19 20 21 22 23 24 25 "
            "26\n 27 28 29]");
  EXPECT_EQ(array_text(floats({1, 2}), {.float_format = "scientific", .separator = ", "}),
            "[1.e+00, 2.e+00]");
}

TEST(PrintTensor, IsAnEffectInProgramOrder) {
  Ir ir;
  Graph& graph = ir.create_empty_graph("test");
  const Tensor x = graph.input(f32_spec({2}), "x");
  graph.add_output(ops::print_tensor(ops::print_tensor(x), {.title = "again"}));
  ASSERT_EQ(graph.ops().size(), 2U);
  EXPECT_EQ(graph.ops()[1].effects.at(0).order, 1);
  testing::internal::CaptureStderr();
  Interpreter(ir).evaluate(graph, {floats({1, 2})});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "x: [1. 2.]\nagain: [1. 2.]\n");
}

TEST(Basic, InitFills) {
  Ir ir;
  Graph& graph = ir.create_empty_graph("test");
  graph.set_outputs({ops::init(graph, f32_spec({2})), ops::init(graph, f32_spec({2}), 0.5)});
  const auto y = Interpreter(ir).evaluate(graph, {});
  EXPECT_EQ(values_of(y[0]), (std::vector<float>{0, 0}));
  EXPECT_EQ(values_of(y[1]), (std::vector<float>{0.5f, 0.5f}));
}

}  // namespace
}  // namespace sluice
