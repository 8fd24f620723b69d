#include "sluice/ops/trigonometry.h"

#include <cmath>

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/elementwise.h"
#include "sluice/ops/trigonometric_functors.h"

namespace sluice::ops {
namespace {

using namespace elementwise;  // NOLINT

constexpr auto kSin = [](double x) { return std::sin(x); };
constexpr auto kCos = [](double x) { return std::cos(x); };
constexpr auto kTan = [](double x) { return std::tan(x); };
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

/// Adds samples whose values are large angles, limits and zeros.
template <typename Functor, auto formula>
OpDef of_angle(const char* name, const char* doc, GradFn grad, double flops) {
  OpDef d = define<Functor, formula, 1>(name, doc, {"x"}, infer_float, grad);
  d.doc += " (C1) x is floating point; the result has its dtype.";
  d.flops_per_element = flops;
  d.samples = unary_samples({-1.5, 1.5});
  d.samples.push_back({.inputs = {f32_spec({9})}, .gradient = false});
  d.samples.back().values = {HostTensor::of<float>(
      {9}, f32,
      {1e10f, -3e38f, 40000.0f, 32767.0f, -0.0f, 1e-40f, HUGE_VALF, -HUGE_VALF, std::nanf("")})};
  d.must_fail = {{"(C1)", {i32_spec({2})}, {}}, {"(C1)", {{Shape{2}, f64, {}}}, {}}};
  return d;
}

const OpDef& sin_def() {
  static const OpDef def =
      of_angle<functor::Sin, kSin>("sin", "The sine of x radians.", sin_grad, 25);
  return def;
}
const OpDef& cos_def() {
  static const OpDef def =
      of_angle<functor::Cos, kCos>("cos", "The cosine of x radians.", cos_grad, 25);
  return def;
}
const OpDef& tan_def() {
  static const OpDef def =
      of_angle<functor::Tan, kTan>("tan", "The tangent of x radians.", tan_grad, 35);
  return def;
}
const OpDef& atan_def() {
  static const OpDef def = of_angle<functor::Atan, kAtan>(
      "atan", "The angle in radians from -π/2 to π/2 whose tangent is x.", atan_grad, 30);
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
  return {&sin_def(), &cos_def(), &tan_def(), &atan_def(), &atan2_def()};
}

Tensor sin(TensorArg x) { return emit_one(sin_def(), {x}); }
Tensor cos(TensorArg x) { return emit_one(cos_def(), {x}); }
Tensor tan(TensorArg x) { return emit_one(tan_def(), {x}); }
Tensor atan(TensorArg x) { return emit_one(atan_def(), {x}); }
Tensor atan2(TensorArg y, TensorArg x) { return emit_one(atan2_def(), {y, x}); }

}  // namespace sluice::ops
