// Operators from outside of the library (ops/register_op.h): in fused chains, on halves, with a
// kernel in parts, as text, and in the checker. They have the interpreter's bits in every way.
#include "../support/gradient_check.h"
#include "fusion_program.h"
#include "sluice/interp/check_operator.h"
#include "sluice/ops/register_op.h"

namespace sluice::test {
namespace {

using RegisteredOps = Fusion;
using transforms::usage_error;

Tensors lerp_gradient(GradContext& g) {
  const Tensor a = g.input(0), b = g.input(1), t = g.input(2), y = g.grad(0);
  return {ops::reduce_to(y * (1.0 - t), a.shape()), ops::reduce_to(y * t, b.shape()),
          ops::reduce_to(y * (b - a), t.shape())};
}

const OpDef& lerp_def() {
  static const OpDef& def = ops::register_op(ops::elementwise_op<3>(
      "TestLerp", "test_lerp", {"a", "b", "t"}, "a + t·(b - a).", lerp_gradient,
      [](auto a, auto b, auto t) { return a + t * (b - a); }));
  return def;
}

struct BiasOptions {
  double scale = 2;
  double shift = -0.5;
  static auto fields(auto&& use) {
    return use(field("scale", &BiasOptions::scale), field("shift", &BiasOptions::shift));
  }
};

const OpDef& affine_def() {
  static const OpDef& def = ops::register_op([] {
    OpDef d = ops::elementwise_op<1>(
        "TestAffine", "test_affine", {"x"}, "scale·x + shift.",
        [](GradContext& g) { return Tensors{g.grad(0) * g.options<BiasOptions>().scale}; },
        [](const double* h, auto x) {
          using T = decltype(x);
          return x * static_cast<T>(h[0]) + static_cast<T>(h[1]);
        });
    d.options = to_attrs(BiasOptions{});
    return d;
  }());
  return def;
}

template <typename T>
void sums_of_rows(const KernelArgs& k, int64_t begin, int64_t end) {
  const int64_t columns = k.in_shape(0)[1];
  for (int64_t row = begin; row < end; ++row) {
    T sum = 0;
    for (int64_t i = 0; i < columns; ++i) sum += k.in<T>(0)[static_cast<size_t>(row * columns + i)];
    k.out<T>(0)[static_cast<size_t>(row)] = sum;
  }
}

constexpr int64_t kRowsOfPart = 3;  // 20 rows are 7 parts.

OpDef row_sums() {
  OpDef d;
  d.type = "TestRowSums";
  d.name = "test_row_sums";
  d.doc = "Sums of rows. (C1) A floating-point matrix.";
  d.inputs = {{"x"}};
  d.outputs = {"y"};
  d.infer = [](const OpView& op) {
    const TensorSpec& x = op.input(0);
    require(is_float(x.dtype) && x.shape.rank() == 2, "test_row_sums (C1): x must be a matrix");
    return std::vector<TensorSpec>{{{x.shape[0]}, x.dtype, {}}};
  };
  d.grad = [](GradContext& g) {
    const Shape& x = g.op().input(0).shape;
    return Tensors{ops::expand(ops::reshape(g.grad(0), {x[0], 1}), x)};
  };
  d.reference_float = [](const KernelArgs& k) { sums_of_rows<float>(k, 0, k.in_shape(0)[0]); };
  d.reference_double = [](const KernelArgs& k) { sums_of_rows<double>(k, 0, k.in_shape(0)[0]); };
  d.host_kernel = {[](const OpView&) { return kRowsOfPart; }, sums_of_rows<float>};
  d.samples = {{.inputs = {f32_spec({7, 5})}}, {.inputs = {f32_spec({0, 2})}}};
  d.must_fail = {{"(C1)", {f32_spec({2})}, {}}};
  return d;
}

const OpDef& row_sums_def() {
  static const OpDef& def = ops::register_op(row_sums());
  return def;
}

std::map<std::string, int> kernels_of(const exe::Executable& executable) {
  std::map<std::string, int> keys;
  for (const exe::Function& f : executable.functions) {
    for (const exe::Step& step : f.steps) {
      if (const auto* const kernel = std::get_if<exe::Kernel>(&step.body)) ++keys[kernel->key];
    }
  }
  return keys;
}

TEST_F(RegisteredOps, FuseWithTheirNeighbours) {
  const Tensor x = input({12, 40});
  const Tensor w = variable({40, 35}, "w");
  const Tensor t = ops::sigmoid(variable({35}, "t"));
  const Tensor y =
      ops::relu(ops::emit_one(lerp_def(), {ops::matmul(x, w), main.scalar(2, f32), t}) + 1.0);
  show(ops::emit_one(affine_def(), {y}, BiasOptions{.scale = -3, .shift = 0.25}));
  const Tensor half = ops::cast(y, f16);
  show(ops::emit_one(lerp_def(), {half, half * 0.5, ops::cast(t, f16)}));
  EXPECT_GE(check().max, 4);
}

TEST_F(RegisteredOps, RunInParts) {
  const Tensor x = input({20, 33});
  const Tensor y = ops::emit_one(row_sums_def(), {x});
  show(y);
  show(ops::emit_one(row_sums_def(), {ops::cast(x, bf16)}));
  check();
  Session session(program.ir, {.device = cpu_device({.threads = 2})});
  const auto keys = kernels_of(session.executable());
  EXPECT_EQ(keys.at("cpu.host"), 2);  // On f32, and on copies of bf16.
  EXPECT_EQ(keys.count("cpu.reference"), 0u);
}

TEST_F(RegisteredOps, PassTheChecksOfOperators) {
  for (const OpDef* def : {&lerp_def(), &affine_def(), &row_sums_def()})
    EXPECT_NO_THROW(check_operator(*def));
  EXPECT_EQ(ops::find_op("TestLerp"), &lerp_def());

  OpDef wrong = lerp_def();
  wrong.grad = [](GradContext& g) { return Tensors{g.grad(0), g.grad(0), g.grad(0)}; };
  const auto message = [](const OpDef& def) { return usage_error([&] { check_operator(def); }); };
  EXPECT_NE(message(wrong).find("type TestLerp must be that of one operator"), std::string::npos);
  wrong.type = "TestWrongGradient";
  EXPECT_NE(message(ops::register_op(wrong)).find("gradient of TestWrongGradient: sample"),
            std::string::npos);
  wrong = lerp_def();
  wrong.type = "TestWrongMap";
  wrong.map = affine_def().map;
  EXPECT_NE(message(ops::register_op(wrong)).find("map must compute the bits"), std::string::npos);
  wrong = row_sums();
  wrong.type = "TestWrongParts";
  wrong.host_kernel.run = [](const KernelArgs& k, int64_t, int64_t end) {
    sums_of_rows<float>(k, 0, end - 1);
  };
  EXPECT_NE(message(ops::register_op(wrong)).find("host_kernel must compute the bits"),
            std::string::npos);
  wrong = row_sums();
  wrong.type = "TestWrongDouble";
  wrong.reference_double = [](const KernelArgs& k) { k.out<double>(0)[0] = 7; };
  wrong.samples.pop_back();
  EXPECT_NE(message(ops::register_op(wrong)).find("accuracy of TestWrongDouble: sample"),
            std::string::npos);
}

TEST_F(RegisteredOps, Refusals) {
  const auto message = [](auto&& change) {
    OpDef def = row_sums();
    def.type = "TestRefused";
    change(def);
    return usage_error([&] { ops::register_op(std::move(def)); });
  };
  EXPECT_EQ(message([](OpDef& d) { d.type = "Add"; }),
            "register_op: there is an operator of type 'Add' already");
  EXPECT_EQ(message([](OpDef& d) { d.type = row_sums_def().type; }),
            "register_op: there is an operator of type 'TestRowSums' already");
  EXPECT_EQ(message([](OpDef& d) { d.type = "My op"; }),
            "register_op: type and name must be identifiers, got 'My op' and 'test_row_sums'");
  EXPECT_EQ(message([](OpDef& d) { d.type = "ReluLhsInplace"; }),
            "register_op: a type must not end with 'Inplace', got 'ReluLhsInplace'");
  EXPECT_EQ(message([](OpDef& d) { d.outputs = {}; }),
            "register_op: TestRefused requires at least one output, got none");
  EXPECT_EQ(message([](OpDef& d) { d.reference_double = nullptr; }),
            "register_op: TestRefused requires infer, reference_float and reference_double");
  EXPECT_EQ(message([](OpDef& d) { d.traits = kCollective; }),
            "register_op: TestRefused must be neither structural nor a collective");
  EXPECT_EQ(message([](OpDef& d) { d.host_kernel.rows = nullptr; }),
            "register_op: host_kernel of TestRefused requires both functions or none");
  EXPECT_EQ(message([](OpDef& d) { d.map = lerp_def().map; }),
            "register_op: a map requires one output and the trait kElementwise; TestRefused has 1 "
            "outputs");
  EXPECT_EQ(message([](OpDef& d) {
              d.may_coincide = {{0, 1}};
            }),
            "register_op: may_coincide of TestRefused must name one of 1 inputs and one of 1 "
            "outputs, got (0, 1)");
  EXPECT_EQ(message([](OpDef& d) {
              d.aliases = {{0, 1}};
            }),
            "register_op: aliases of TestRefused must name one of 1 inputs and one of 1 outputs, "
            "got (1, 0)");
  EXPECT_EQ(message([](OpDef& d) { d.samples.push_back({.inputs = {f32_spec({3})}}); }),
            "test_row_sums (C1): x must be a matrix");
  EXPECT_EQ(message([](OpDef& d) {
              d.outputs = {"y", "z"};
            }),
            "register_op: infer of TestRefused must return 2 specs on its samples, got 1");
  EXPECT_EQ(message([](OpDef& d) {
              d.must_fail = {{"(C1)", {f32_spec({2, 2})}, {}}};
            }),
            "register_op: an input of must_fail of TestRefused must be refused by (C1), but was "
            "accepted");
  EXPECT_EQ(message([](OpDef& d) { d.must_fail[0].constraint = "(C2)"; }),
            "register_op: an input of must_fail of TestRefused must be refused by (C2), got "
            "'test_row_sums (C1): x must be a matrix'");
  EXPECT_EQ(message([](OpDef& d) { d.traits = kView; }),
            "register_op: TestRefused must not be a view; reshape() makes views");
  EXPECT_EQ(message([](OpDef& d) {
              d = lerp_def();
              d.type = "TestRefused";
              d.inputs.resize(7);
            }),
            "register_op: a map has at most 6 inputs; TestRefused has 7");
  OpDef none = row_sums();
  none.type = "TestNoRows";
  none.host_kernel.rows = [](const OpView&) -> int64_t { return 0; };
  show(ops::emit_one(ops::register_op(std::move(none)), {input({4, 2})}));
  EXPECT_EQ(usage_error([&] {
              Session(program.ir, {.device = cpu_device()});
            }).find("test_row_sums: a part of host_kernel must have at least 1 row, got 0\n"),
            0u);
  EXPECT_EQ(usage_error([] {
              ops::elementwise_op<2>("A", "a", {"x"}, "", nullptr,
                                     [](auto x, auto y) { return x + y; });
            }),
            "a: 2 names of operands are required, got 1");
}

}  // namespace
}  // namespace sluice::test
