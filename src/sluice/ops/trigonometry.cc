#include "sluice/ops/unary.h"

#include <cmath>

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/elementwise.h"
#include "sluice/ops/trigonometric_functors.h"
#include "sluice/ops/unary.h"

namespace sluice::ops {
namespace {

using namespace elementwise;  // NOLINT

constexpr auto kSin = [](double x) { return std::sin(x); };
constexpr auto kCos = [](double x) { return std::cos(x); };
constexpr auto kTan = [](double x) { return std::tan(x); };
constexpr auto kAsin = [](double x) { return std::asin(x); };
constexpr auto kAcos = [](double x) { return std::acos(x); };
constexpr auto kSinh = [](double x) { return std::sinh(x); };
constexpr auto kCosh = [](double x) { return std::cosh(x); };
constexpr auto kAsinh = [](double x) { return std::asinh(x); };
constexpr auto kAcosh = [](double x) { return std::acosh(x); };
constexpr auto kAtanh = [](double x) { return std::atanh(x); };
constexpr auto kAtan = [](double x) { return std::atan(x); };
constexpr auto kAtan2 = [](double y, double x) { return std::atan2(y, x); };

Tensors sin_grad(GradContext& g) { return {g.grad(0) * cos(g.input(0))}; }
Tensors cos_grad(GradContext& g) { return {-(g.grad(0) * sin(g.input(0)))}; }
Tensors tan_grad(GradContext& g) {
  const Tensor y = g.output(0);
  return {g.grad(0) * (y * y + 1.0)};
}
Tensors atan_grad(GradContext& g) {
  const Tensor x = g.input(0);
  return {g.grad(0) / (x * x + 1.0)};
}
Tensors atan2_grad(GradContext& g) {
  const Tensor y = g.input(0), x = g.input(1);
  const Tensor scaled = g.grad(0) / (x * x + y * y);
  Tensors grads(2);
  if (g.needs(0)) grads[0] = reduce_to(scaled * x, g.op().input(0).shape);
  if (g.needs(1)) grads[1] = reduce_to(-(scaled * y), g.op().input(1).shape);
  return grads;
}

// 1 - x² and x² - 1 as products, which keep their accuracy for x close to 1.
Tensor one_minus_square(const Tensor& x) { return (1.0 - x) * (x + 1.0); }
Tensor square_minus_one(const Tensor& x) { return (x - 1.0) * (x + 1.0); }

Tensors asin_grad(GradContext& g) { return {g.grad(0) * rsqrt(one_minus_square(g.input(0)))}; }
Tensors acos_grad(GradContext& g) { return {-(g.grad(0) * rsqrt(one_minus_square(g.input(0))))}; }
Tensors sinh_grad(GradContext& g) { return {g.grad(0) * cosh(g.input(0))}; }
Tensors cosh_grad(GradContext& g) { return {g.grad(0) * sinh(g.input(0))}; }
Tensors asinh_grad(GradContext& g) {
  const Tensor x = g.input(0);
  return {g.grad(0) * rsqrt(x * x + 1.0)};
}
Tensors acosh_grad(GradContext& g) { return {g.grad(0) * rsqrt(square_minus_one(g.input(0)))}; }
Tensors atanh_grad(GradContext& g) { return {g.grad(0) / one_minus_square(g.input(0))}; }

/// Adds samples whose values are large, limits of domains and of float32, and zeros.
template <typename Functor, auto formula>
OpDef function_of(const char* name, const char* doc, GradFn grad, double flops,
                  std::pair<double, double> domain = {-1.5, 1.5}) {
  OpDef d = define<Functor, formula, 1>(name, doc, {"x"}, infer_float, grad);
  d.doc += " (C1) x is floating point; the result has its dtype.";
  d.flops_per_element = flops;
  d.samples = unary_samples(domain);
  d.samples.push_back({.inputs = {f32_spec({15})}, .gradient = false});
  d.samples.back().values = {
      HostTensor::of<float>({15}, f32,
                            {1e10f, -3e38f, 40000.0f, 32767.0f, -0.0f, 1e-40f, HUGE_VALF,
                             -HUGE_VALF, std::nanf(""), 1, -1, 2, 0.625f, 88.9f, -89.4f})};
  d.must_fail = {{"(C1)", {i32_spec({2})}, {}}, {"(C1)", {{Shape{2}, f64, {}}}, {}}};
  return d;
}

const OpDef& sin_def() {
  static const OpDef def =
      function_of<functor::Sin, kSin>("sin", "The sine of x radians.", sin_grad, 25);
  return def;
}
const OpDef& cos_def() {
  static const OpDef def =
      function_of<functor::Cos, kCos>("cos", "The cosine of x radians.", cos_grad, 25);
  return def;
}
const OpDef& tan_def() {
  static const OpDef def =
      function_of<functor::Tan, kTan>("tan", "The tangent of x radians.", tan_grad, 35);
  return def;
}
const OpDef& atan_def() {
  static const OpDef def = function_of<functor::Atan, kAtan>(
      "atan", "The angle in radians from -π/2 to π/2 whose tangent is x.", atan_grad, 30);
  return def;
}
const OpDef& asin_def() {
  static const OpDef def = function_of<functor::Asin, kAsin>(
      "asin", "The angle in radians from -π/2 to π/2 whose sine is x; NaN for |x| > 1.", asin_grad,
      20, {-0.9, 0.9});
  return def;
}
const OpDef& acos_def() {
  static const OpDef def = function_of<functor::Acos, kAcos>(
      "acos", "The angle in radians from 0 to π whose cosine is x; NaN for |x| > 1.", acos_grad, 25,
      {-0.9, 0.9});
  return def;
}
const OpDef& sinh_def() {
  static const OpDef def =
      function_of<functor::Sinh, kSinh>("sinh", "(eˣ − e⁻ˣ) / 2.", sinh_grad, 30);
  return def;
}
const OpDef& cosh_def() {
  static const OpDef def =
      function_of<functor::Cosh, kCosh>("cosh", "(eˣ + e⁻ˣ) / 2.", cosh_grad, 20);
  return def;
}
const OpDef& asinh_def() {
  static const OpDef def = function_of<functor::Asinh, kAsinh>(
      "asinh", "The number whose hyperbolic sine is x: ln(x + √(x² + 1)).", asinh_grad, 45,
      {-3, 3});
  return def;
}
const OpDef& acosh_def() {
  static const OpDef def = function_of<functor::Acosh, kAcosh>(
      "acosh",
      "The number from 0 on whose hyperbolic cosine is x: ln(x + √(x² − 1)); NaN for x < 1.",
      acosh_grad, 45, {1.25, 4});
  return def;
}
const OpDef& atanh_def() {
  static const OpDef def = function_of<functor::Atanh, kAtanh>(
      "atanh",
      "The number whose hyperbolic tangent is x: ln((1 + x) / (1 − x)) / 2; NaN for |x| > 1.",
      atanh_grad, 40, {-0.9, 0.9});
  return def;
}
const OpDef& atan2_def() {
  static const OpDef def = [] {
    OpDef d = define<functor::Atan2, kAtan2, 2>(
        "atan2",
        "The angle in radians from -π to π of the point (x, y). (C1) Floating point. (C2) Both of "
        "one dtype. (C3) Shapes broadcast.",
        {"y", "x"}, infer_float, atan2_grad);
    d.flops_per_element = 40;
    d.samples = binary_samples({0.25, 2});
    d.must_fail = {{"(C1)", {i32_spec({2}), i32_spec({2})}, {}},
                   {"(C2)", {f32_spec({2}), {Shape{2}, f16, {}}}, {}},
                   {"(C3)", {f32_spec({2}), f32_spec({3})}, {}}};
    return d;
  }();
  return def;
}

}  // namespace

std::vector<const OpDef*> trigonometry_ops() {
  return {&sin_def(),   &cos_def(),  &tan_def(),  &asin_def(),  &acos_def(),  &atan_def(),
          &atan2_def(), &sinh_def(), &cosh_def(), &asinh_def(), &acosh_def(), &atanh_def()};
}

Tensor sin(TensorArg x) { return emit_one(sin_def(), {x}); }
Tensor cos(TensorArg x) { return emit_one(cos_def(), {x}); }
Tensor tan(TensorArg x) { return emit_one(tan_def(), {x}); }
Tensor asin(TensorArg x) { return emit_one(asin_def(), {x}); }
Tensor acos(TensorArg x) { return emit_one(acos_def(), {x}); }
Tensor atan(TensorArg x) { return emit_one(atan_def(), {x}); }
Tensor atan2(TensorArg y, TensorArg x) { return emit_one(atan2_def(), {y, x}); }
Tensor sinh(TensorArg x) { return emit_one(sinh_def(), {x}); }
Tensor cosh(TensorArg x) { return emit_one(cosh_def(), {x}); }
Tensor asinh(TensorArg x) { return emit_one(asinh_def(), {x}); }
Tensor acosh(TensorArg x) { return emit_one(acosh_def(), {x}); }
Tensor atanh(TensorArg x) { return emit_one(atanh_def(), {x}); }

}  // namespace sluice::ops
