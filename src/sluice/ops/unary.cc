#include "sluice/ops/unary.h"

#include <cmath>
#include <numbers>

#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/elementwise.h"

namespace sluice::ops {

namespace functor {
Elu Elu::make(const double* h) { return {static_cast<float>(h[0])}; }
EluGrad EluGrad::make(const double* h) { return {static_cast<float>(h[0])}; }
LeakyRelu LeakyRelu::make(const double* h) { return {static_cast<float>(h[0])}; }
LeakyReluGrad LeakyReluGrad::make(const double* h) { return {static_cast<float>(h[0])}; }
}  // namespace functor

namespace {

using namespace elementwise;  // NOLINT

constexpr auto kFloor = [](double x) { return std::floor(x); };
constexpr auto kCeil = [](double x) { return std::ceil(x); };
constexpr auto kTrunc = [](double x) { return std::trunc(x); };
constexpr auto kRound = [](double x) { return std::nearbyint(x); };
constexpr auto kSign = [](double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; };
constexpr auto kRsqrt = [](double x) { return 1 / std::sqrt(x); };
constexpr auto kErf = [](double x) { return std::erf(x); };
constexpr auto kLog2 = [](double x) { return std::log2(x); };
constexpr auto kLog1p = [](double x) { return std::log1p(x); };
constexpr auto kExpm1 = [](double x) { return std::expm1(x); };
constexpr auto kSoftplus = [](double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
};
constexpr double kErfSlope = 2 * std::numbers::inv_sqrtpi;
constexpr auto kErfGrad = [](double x, double g) { return g * kErfSlope * std::exp(-x * x); };
constexpr auto kEluGrad = [](const double* h, double x, double g) {
  return x > 0 ? g : g * h[0] * std::exp(x);
};
constexpr auto kLeakyReluGrad = [](const double* h, double x, double g) {
  return x > 0 ? g : g * h[0];
};
constexpr auto kElu = [](const double* h, double x) { return x > 0 ? x : h[0] * std::expm1(x); };
constexpr auto kLeakyRelu = [](const double* h, double x) { return x > 0 ? x : h[0] * x; };

Tensors rsqrt_grad(GradContext& g) {
  const Tensor y = g.output(0);
  return {g.grad(0) * (y * y * y * -0.5)};
}
// A 2 is exact in each dtype, unlike ln 2.
Tensors log2_grad(GradContext& g) {
  const Tensor x = g.input(0);
  return {g.grad(0) / (x * log(scalar_like(x, 2)))};
}
Tensors log1p_grad(GradContext& g) { return {g.grad(0) / (g.input(0) + 1.0)}; }
Tensors expm1_grad(GradContext& g) { return {g.grad(0) * (g.output(0) + 1.0)}; }
Tensors softplus_grad(GradContext& g) { return {g.grad(0) * sigmoid(g.input(0))}; }

Tensors erf_grad_formula(const OpView&, const Tensors& in) {
  return {in[1] * (exp(-(in[0] * in[0])) * kErfSlope)};
}
Tensors elu_grad_formula(const OpView& op, const Tensors& in) {
  const double alpha = op.options<EluOptions>().alpha;
  return {in[1] * where(greater(in[0], 0.0), 1.0, exp(in[0]) * alpha)};
}
Tensors leaky_relu_grad_formula(const OpView& op, const Tensors& in) {
  const double slope = op.options<LeakyReluOptions>().slope;
  return {where(greater(in[0], 0.0), in[1], in[1] * slope)};
}

/// The gradient of a unary function, as a function of its operand x and of g.
template <typename Functor, auto function>
OpDef gradient(const char* name, const char* doc, FormulaFn formula, double flops) {
  OpDef d = define<Functor, function, 2>(name, doc, {"x", "g"}, infer_float, nullptr);
  d.audience = Audience::kOperators;
  d.doc += " (C1) Floating point. (C2) Both of one dtype. (C3) Shapes broadcast.";
  d.formula = formula;
  d.flops_per_element = flops;
  d.samples = pair_samples({-2, 2});
  d.must_fail = {{"(C1)", {i32_spec({2}), i32_spec({2})}, {}},
                 {"(C2)", {f32_spec({2}), {Shape{2}, f16, {}}}, {}},
                 {"(C3)", {f32_spec({2, 3}), f32_spec({2})}, {}}};
  return d;
}

template <typename Functor, auto formula>
OpDef unary(const char* name, const std::string& doc, GradFn grad, double flops,
            std::pair<double, double> domain) {
  const std::string all = doc + " (C1) x is floating point; the result has its dtype.";
  OpDef d = define<Functor, formula, 1>(name, all.c_str(), {"x"}, infer_float, grad);
  d.flops_per_element = flops;
  d.samples = unary_samples(domain);
  d.must_fail = {{"(C1)", {i32_spec({2})}, {}}, {"(C1)", {{Shape{2}, f64, {}}}, {}}};
  return d;
}

/// A function whose derivative is 0 wherever it has one.
template <typename Functor, auto formula>
OpDef step_function(const char* name, const char* doc) {
  OpDef d = unary<Functor, formula>(name, doc, nullptr, 1, {-3, 3});
  d.traits = d.traits | Trait::kZeroGradient;
  const float nan = std::nanf("");
  d.samples.push_back({.inputs = {f32_spec({9})}});
  d.samples.back().values = {HostTensor::of<float>(
      {9}, f32, {0.5f, 1.5f, -0.5f, -2.5f, 0.0f, -0.0f, 1e30f, -HUGE_VALF, nan})};
  for (Sample& s : d.samples) s.gradient = false;
  return d;
}

template <typename Options>
OpDef with_options(OpDef d, const Options& options) {
  d.set_options(Options{});
  for (Sample& s : d.samples) s.options = to_attrs(options);
  for (auto& m : d.must_fail) m.options = to_attrs(options);
  return d;
}

const OpDef& erf_grad_def() {
  static const OpDef def =
      gradient<functor::ErfGrad, kErfGrad>("erf_grad", "g·2/√π·e^(−x²).", erf_grad_formula, 25);
  return def;
}
const OpDef& elu_grad_def() {
  static const OpDef def =
      with_options(gradient<functor::EluGrad, kEluGrad>(
                       "elu_grad", "g where x > 0, else g·alpha·eˣ.", elu_grad_formula, 20),
                   EluOptions{.alpha = 1.5});
  return def;
}
const OpDef& leaky_relu_grad_def() {
  static const OpDef def = with_options(
      gradient<functor::LeakyReluGrad, kLeakyReluGrad>(
          "leaky_relu_grad", "g where x > 0, else g·slope.", leaky_relu_grad_formula, 2),
      LeakyReluOptions{.slope = 0.2});
  return def;
}
Tensors erf_grad(GradContext& g) { return {emit_one(erf_grad_def(), {g.input(0), g.grad(0)})}; }
Tensors elu_grad(GradContext& g) {
  return {emit_one(elu_grad_def(), {g.input(0), g.grad(0)}, g.options<EluOptions>())};
}
Tensors leaky_relu_grad(GradContext& g) {
  return {emit_one(leaky_relu_grad_def(), {g.input(0), g.grad(0)}, g.options<LeakyReluOptions>())};
}

const OpDef& ceil_def() {
  static const OpDef def = step_function<functor::Ceil, kCeil>("ceil", "x rounded up.");
  return def;
}
const OpDef& trunc_def() {
  static const OpDef def = step_function<functor::Trunc, kTrunc>("trunc", "x rounded toward zero.");
  return def;
}
const OpDef& round_def() {
  static const OpDef def = step_function<functor::Round, kRound>(
      "round", "x rounded to the nearest integer, ties to even.");
  return def;
}
const OpDef& sign_def() {
  static const OpDef def =
      step_function<functor::Sign, kSign>("sign", "1 where x > 0, −1 where x < 0, else x.");
  return def;
}
const OpDef& log2_def() {
  static const OpDef def = unary<functor::Log2, kLog2>("log2", "The logarithm of x to base 2.",
                                                       log2_grad, 25, {0.25, 4});
  return def;
}
const OpDef& log1p_def() {
  static const OpDef def =
      unary<functor::Log1p, kLog1p>("log1p", "ln(1 + x).", log1p_grad, 25, {-0.5, 3});
  return def;
}
const OpDef& expm1_def() {
  static const OpDef def =
      unary<functor::Expm1, kExpm1>("expm1", "eˣ − 1.", expm1_grad, 20, {-2, 2});
  return def;
}
const OpDef& elu_def() {
  static const OpDef def =
      with_options(unary<functor::Elu, kElu>("elu", "x where x > 0, else alpha·(eˣ − 1).", elu_grad,
                                             20, {-3, 3}),
                   EluOptions{.alpha = 1.5});
  return def;
}
const OpDef& leaky_relu_def() {
  static const OpDef def =
      with_options(unary<functor::LeakyRelu, kLeakyRelu>(
                       "leaky_relu", "x where x > 0, else slope·x.", leaky_relu_grad, 1, {-3, 3}),
                   LeakyReluOptions{.slope = 0.2});
  return def;
}

}  // namespace

const OpDef& floor_def() {
  static const OpDef def = step_function<functor::Floor, kFloor>("floor", "x rounded down.");
  return def;
}
const OpDef& rsqrt_def() {
  static const OpDef def =
      unary<functor::Rsqrt, kRsqrt>("rsqrt", "1/√x.", rsqrt_grad, 10, {0.25, 4});
  return def;
}
const OpDef& erf_def() {
  static const OpDef def =
      unary<functor::Erf, kErf>("erf", "The error function of x.", erf_grad, 35, {-2, 2});
  return def;
}
const OpDef& softplus_def() {
  static const OpDef def =
      unary<functor::Softplus, kSoftplus>("softplus", "ln(1 + eˣ).", softplus_grad, 40, {-3, 3});
  return def;
}

std::vector<const OpDef*> unary_ops() {
  return {&floor_def(), &ceil_def(),     &trunc_def(),      &round_def(),
          &sign_def(),  &rsqrt_def(),    &erf_def(),        &erf_grad_def(),
          &log2_def(),  &log1p_def(),    &expm1_def(),      &softplus_def(),
          &elu_def(),   &elu_grad_def(), &leaky_relu_def(), &leaky_relu_grad_def()};
}

Tensor floor(TensorArg x) { return emit_one(floor_def(), {x}); }
Tensor ceil(TensorArg x) { return emit_one(ceil_def(), {x}); }
Tensor trunc(TensorArg x) { return emit_one(trunc_def(), {x}); }
Tensor round(TensorArg x) { return emit_one(round_def(), {x}); }
Tensor sign(TensorArg x) { return emit_one(sign_def(), {x}); }
Tensor rsqrt(TensorArg x) { return emit_one(rsqrt_def(), {x}); }
Tensor square(TensorArg x) { return mul(x, x); }
Tensor erf(TensorArg x) { return emit_one(erf_def(), {x}); }
Tensor log2(TensorArg x) { return emit_one(log2_def(), {x}); }
Tensor log1p(TensorArg x) { return emit_one(log1p_def(), {x}); }
Tensor expm1(TensorArg x) { return emit_one(expm1_def(), {x}); }
Tensor softplus(TensorArg x) { return emit_one(softplus_def(), {x}); }
Tensor elu(TensorArg x, double alpha) { return emit_one(elu_def(), {x}, EluOptions{alpha}); }
Tensor leaky_relu(TensorArg x, double slope) {
  return emit_one(leaky_relu_def(), {x}, LeakyReluOptions{slope});
}
Tensor hard_sigmoid(TensorArg x) { return clip((x + 3.0) / 6.0, {.min = 0, .max = 1}); }
Tensor hard_swish(TensorArg x) { return mul(x, hard_sigmoid(x)); }
Tensor mish(TensorArg x) { return mul(x, tanh(softplus(x))); }

}  // namespace sluice::ops
