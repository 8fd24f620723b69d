#include "sluice/ops/activations.h"

#include <cmath>
#include <numbers>

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/elementwise.h"

namespace sluice::ops {
namespace {

using namespace elementwise;  // NOLINT

double sigma(double x) { return 1 / (1 + std::exp(-x)); }
double gaussian(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double gaussian_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

const double kRoot = std::sqrt(2 / std::numbers::pi);
double gelu_inner(double x) { return kRoot * (x + 0.044715 * x * x * x); }

constexpr auto kRelu = [](double x) { return x < 0 ? 0.0 : x; };
constexpr auto kReluGrad = [](double y, double g) { return y <= 0 ? 0.0 : g; };
constexpr auto kGeluGate = [](double x) { return sigma(2 * gelu_inner(x)); };
constexpr auto kGeluSlope = [](double x, double s) {
  return s + 2 * x * s * (1 - s) * kRoot * (1 + 3 * 0.044715 * x * x);
};
constexpr auto kGelu = [](double x) { return x * kGeluGate(x); };
constexpr auto kGeluGrad = [](double x, double g) { return g * kGeluSlope(x, kGeluGate(x)); };
constexpr auto kGeluErfGate = [](double x) { return std::erf(x / std::numbers::sqrt2); };
constexpr auto kGeluErfValue = [](double x, double e) { return x / 2 * (1 + e); };
constexpr auto kGeluErfSlope = [](double x, double e) { return (1 + e) / 2 + x * gaussian(x); };
constexpr auto kGeluErf = [](double x) { return x * gaussian_cdf(x); };
constexpr auto kGeluErfGrad = [](double x, double g) {
  return g * (gaussian_cdf(x) + x * gaussian(x));
};
constexpr auto kSwishSlope = [](double x, double s) { return s + x * s * (1 - s); };
constexpr auto kSwish = [](double x) { return x * sigma(x); };
constexpr auto kSwishGrad = [](double x, double g) { return g * kSwishSlope(x, sigma(x)); };
constexpr auto kSigmoid = [](double x) { return sigma(x); };
constexpr auto kSigmoidGrad = [](double y, double g) { return g * y * (1 - y); };
constexpr auto kTanh = [](double x) { return std::tanh(x); };
constexpr auto kTanhGrad = [](double y, double g) { return g * (1 - y * y); };

// --- formulas, as graphs of other ops ---

Tensor gelu_gate_of(const Tensor& x) { return sigmoid((x + x * x * x * 0.044715) * (2 * kRoot)); }
Tensor gelu_slope_of(const Tensor& x, const Tensor& s) {
  return s + x * s * (1.0 - s) * (x * x * (3 * 0.044715) + 1.0) * (2 * kRoot);
}
Tensor gaussian_of(const Tensor& x) {
  return exp(x * x * -0.5) * (1 / std::sqrt(2 * std::numbers::pi));
}
Tensor gelu_erf_slope_of(const Tensor& x, const Tensor& e) {
  return (e + 1.0) * 0.5 + x * gaussian_of(x);
}
Tensor swish_slope_of(const Tensor& x, const Tensor& s) { return s + x * s * (1.0 - s); }

Tensors gelu_gate_formula(const OpView&, const Tensors& in) { return {gelu_gate_of(in[0])}; }
Tensors gelu_slope_formula(const OpView&, const Tensors& in) {
  return {gelu_slope_of(in[0], in[1])};
}
Tensors gelu_grad_formula(const OpView&, const Tensors& in) {
  return {gelu_slope_of(in[0], gelu_gate_of(in[0])) * in[1]};
}
Tensors gelu_erf_value_formula(const OpView&, const Tensors& in) {
  return {in[0] * 0.5 * (in[1] + 1.0)};
}
Tensors gelu_erf_slope_formula(const OpView&, const Tensors& in) {
  return {gelu_erf_slope_of(in[0], in[1])};
}
Tensors swish_slope_formula(const OpView&, const Tensors& in) {
  return {swish_slope_of(in[0], in[1])};
}
Tensors swish_grad_formula(const OpView&, const Tensors& in) {
  return {swish_slope_of(in[0], sigmoid(in[0])) * in[1]};
}
Tensors sigmoid_grad_formula(const OpView&, const Tensors& in) {
  return {in[1] * in[0] * (1.0 - in[0])};
}
Tensors tanh_grad_formula(const OpView&, const Tensors& in) {
  return {in[1] * (1.0 - in[0] * in[0])};
}

// d/dx erf(x/√2) = 2φ(x).
Tensors gelu_erf_gate_grad(GradContext& g) { return {g.grad(0) * gaussian_of(g.input(0)) * 2.0}; }

template <typename Functor, auto formula>
OpDef activation(const char* name, const char* doc, GradFn grad, double flops,
                 std::pair<double, double> domain = {-3, 3}) {
  OpDef d = define<Functor, formula, 1>(name, doc, {"x"}, infer_float, grad);
  d.doc += " (C1) x is floating point; the result has its type.";
  d.flops_per_element = flops;
  d.samples = unary_samples(domain);
  d.must_fail = {{"(C1)", {i32_spec({2})}, {}}, {"(C1)", {{Shape{2}, f64, {}}}, {}}};
  return d;
}

/// Defines an operator whose work an activation and its gradient share, or one that finishes that
/// work (see SharedWork). Its operands are floating point and have one dtype and one shape.
template <typename Functor, auto formula, int N>
OpDef shared(const char* name, const char* doc, std::array<const char*, N> inputs, double flops,
             FormulaFn graph, std::pair<double, double> gate = {0, 1}) {
  OpDef d = define<Functor, formula, N>(name, doc, inputs, infer_float, nullptr);
  d.audience = Audience::kOperators;
  d.doc += " (C1) Floating point.";
  d.formula = graph;
  d.flops_per_element = flops;
  d.must_fail = {{"(C1)", std::vector<TensorSpec>(N, i32_spec({2})), {}}};
  if constexpr (N == 1) {
    d.samples = unary_samples({-3, 3});
  } else {
    d.doc += " (C2) Both of one dtype. (C3) Shapes broadcast.";
    d.samples = pair_samples(gate);
    d.must_fail.push_back({"(C2)", {f32_spec({2}), {Shape{2}, f16, {}}}, {}});
    d.must_fail.push_back({"(C3)", {f32_spec({2, 3}), f32_spec({2})}, {}});
  }
  return d;
}

const OpDef& gelu_gate_def() {
  static const OpDef def = shared<functor::GeluGate, kGeluGate, 1>(
      "gelu_gate", "σ(2√(2/π)·(x + 0.044715·x³)): gelu is x times this.", {"x"}, 17,
      gelu_gate_formula);
  return def;
}
const OpDef& gelu_slope_def() {
  static const OpDef def = shared<functor::GeluSlope, kGeluSlope, 2>(
      "gelu_slope", "The derivative of gelu at x, from s = gelu_gate(x).", {"x", "s"}, 9,
      gelu_slope_formula);
  return def;
}
const OpDef& gelu_erf_gate_def() {
  static const OpDef def = [] {
    OpDef d = shared<functor::GeluErfGate, kGeluErfGate, 1>("gelu_erf_gate", "erf(x/√2).", {"x"},
                                                            28, nullptr);
    d.grad = gelu_erf_gate_grad;
    // The rule has constants, which float16 and bfloat16 round.
    for (Sample& s : d.samples) s.gradient = s.inputs[0].dtype == f32;
    return d;
  }();
  return def;
}
const OpDef& gelu_erf_value_def() {
  static const OpDef def = shared<functor::GeluErfValue, kGeluErfValue, 2>(
      "gelu_erf_value", "x/2·(1 + e): gelu_erf from e = gelu_erf_gate(x).", {"x", "e"}, 3,
      gelu_erf_value_formula, {-1, 1});
  return def;
}
const OpDef& gelu_erf_slope_def() {
  static const OpDef def = shared<functor::GeluErfSlope, kGeluErfSlope, 2>(
      "gelu_erf_slope", "The derivative of gelu_erf at x, from e = gelu_erf_gate(x).", {"x", "e"},
      18, gelu_erf_slope_formula, {-1, 1});
  return def;
}
const OpDef& swish_slope_def() {
  static const OpDef def = shared<functor::SwishSlope, kSwishSlope, 2>(
      "swish_slope", "The derivative of swish at x, from s = σ(x).", {"x", "s"}, 5,
      swish_slope_formula);
  return def;
}

Tensors gelu_erf_grad_formula(const OpView&, const Tensors& in) {
  return {gelu_erf_slope_of(in[0], emit_one(gelu_erf_gate_def(), {in[0]})) * in[1]};
}

/// Defines the gradient operator of an activation. Its operands are `what` (the operand x or the
/// result y of the activation) and g, the gradient of the result.
template <typename Functor, auto formula>
OpDef gradient(const char* name, const char* what, double flops, std::pair<double, double> domain,
               FormulaFn graph) {
  const std::string doc =
      fmt::format("The gradient of {}'s operand from its {} and g.",
                  std::string_view(name).substr(0, std::string_view(name).rfind('_')),
                  *what == 'x' ? "operand x" : "result y");
  OpDef d = define<Functor, formula, 2>(name, doc.c_str(), {what, "g"}, infer_float, nullptr);
  d.audience = Audience::kOperators;
  d.doc += " (C1) Floating point. (C2) Both of one dtype. (C3) Shapes broadcast.";
  d.formula = graph;
  d.flops_per_element = flops;
  d.samples = pair_samples(domain);
  d.must_fail = {{"(C1)", {i32_spec({2}), i32_spec({2})}, {}},
                 {"(C2)", {f32_spec({2}), {Shape{2}, f16, {}}}, {}},
                 {"(C3)", {f32_spec({2, 3}), f32_spec({2})}, {}}};
  return d;
}

const OpDef& relu_grad_def() {
  static const OpDef def =
      gradient<functor::ReluGrad, kReluGrad>("relu_grad", "y", 1, {0.1, 2}, times_gradient);
  return def;
}
const OpDef& gelu_grad_def() {
  static const OpDef def =
      gradient<functor::GeluGrad, kGeluGrad>("gelu_grad", "x", 26, {-3, 3}, gelu_grad_formula);
  return def;
}
const OpDef& gelu_erf_grad_def() {
  static const OpDef def = gradient<functor::GeluErfGrad, kGeluErfGrad>(
      "gelu_erf_grad", "x", 40, {-3, 3}, gelu_erf_grad_formula);
  return def;
}
const OpDef& swish_grad_def() {
  static const OpDef def =
      gradient<functor::SwishGrad, kSwishGrad>("swish_grad", "x", 20, {-3, 3}, swish_grad_formula);
  return def;
}
const OpDef& sigmoid_grad_def() {
  static const OpDef def = gradient<functor::SigmoidGrad, kSigmoidGrad>(
      "sigmoid_grad", "y", 3, {0.05, 0.95}, sigmoid_grad_formula);
  return def;
}
const OpDef& tanh_grad_def() {
  static const OpDef def =
      gradient<functor::TanhGrad, kTanhGrad>("tanh_grad", "y", 3, {-0.95, 0.95}, tanh_grad_formula);
  return def;
}

template <const OpDef& (*def)()>
Tensors from_input(GradContext& g) {
  return {emit_one(def(), {g.input(0), g.grad(0)})};
}
template <const OpDef& (*def)()>
Tensors from_output(GradContext& g) {
  return {emit_one(def(), {g.output(0), g.grad(0)})};
}

const OpDef& relu_in_place_def() {
  static const OpDef def = in_place(relu_def(), "ReluInplace", "relu_");
  return def;
}
const OpDef& gelu_in_place_def() {
  static const OpDef def = in_place(gelu_def(), "GeluInplace", "gelu_");
  return def;
}
const OpDef& gelu_erf_in_place_def() {
  static const OpDef def = in_place(gelu_erf_def(), "GeluErfInplace", "geluerf_");
  return def;
}
const OpDef& swish_in_place_def() {
  static const OpDef def = in_place(swish_def(), "SwishInplace", "swish_");
  return def;
}

}  // namespace

const OpDef& relu_def() {
  static const OpDef def = [] {
    OpDef d = activation<functor::Relu, kRelu>("relu", "max(0, x).", from_output<relu_grad_def>, 1);
    for (size_t i = 0; i < d.samples.size(); ++i) {  // Keep away from the kink at 0, on both sides.
      d.samples[i].domain = i % 2 == 0 ? std::pair(0.1, 2.0) : std::pair(-2.0, -0.1);
    }
    return d;
  }();
  return def;
}

const OpDef& gelu_def() {
  static const OpDef def = [] {
    OpDef d = activation<functor::Gelu, kGelu>("gelu", "x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))).",
                                               from_input<gelu_grad_def>, 18);
    d.shared_work = {&gelu_gate_def(), &mul_def(), &gelu_slope_def(), &gelu_grad_def()};
    return d;
  }();
  return def;
}

const OpDef& gelu_erf_def() {
  static const OpDef def = [] {
    OpDef d = activation<functor::GeluErf, kGeluErf>("gelu_erf", "x/2·(1 + erf(x/√2)).",
                                                     from_input<gelu_erf_grad_def>, 32);
    d.shared_work = {&gelu_erf_gate_def(), &gelu_erf_value_def(), &gelu_erf_slope_def(),
                     &gelu_erf_grad_def()};
    return d;
  }();
  return def;
}

const OpDef& swish_def() {
  static const OpDef def = [] {
    OpDef d =
        activation<functor::Swish, kSwish>("swish", "x·σ(x).", from_input<swish_grad_def>, 15);
    d.shared_work = {&sigmoid_def(), &mul_def(), &swish_slope_def(), &swish_grad_def()};
    return d;
  }();
  return def;
}

const OpDef& sigmoid_def() {
  static const OpDef def = activation<functor::Sigmoid, kSigmoid>(
      "sigmoid", "1 / (1 + e⁻ˣ).", from_output<sigmoid_grad_def>, 14);
  return def;
}

const OpDef& tanh_def() {
  static const OpDef def = activation<functor::Tanh, kTanh>("tanh", "The hyperbolic tangent.",
                                                            from_output<tanh_grad_def>, 20);
  return def;
}

std::vector<const OpDef*> activations_ops() {
  return {
      &relu_def(),           &relu_in_place_def(),     &relu_grad_def(),     &gelu_def(),
      &gelu_in_place_def(),  &gelu_gate_def(),         &gelu_slope_def(),    &gelu_grad_def(),
      &gelu_erf_def(),       &gelu_erf_in_place_def(), &gelu_erf_gate_def(), &gelu_erf_value_def(),
      &gelu_erf_slope_def(), &gelu_erf_grad_def(),     &swish_def(),         &swish_in_place_def(),
      &swish_slope_def(),    &swish_grad_def(),        &sigmoid_def(),       &sigmoid_grad_def(),
      &tanh_def(),           &tanh_grad_def()};
}

Tensor relu(TensorArg x) { return emit_one(relu_def(), {x}); }
Tensor relu_(TensorArg x) { return emit_one(relu_in_place_def(), {x}); }
Tensor gelu(TensorArg x) { return emit_one(gelu_def(), {x}); }
Tensor gelu_(TensorArg x) { return emit_one(gelu_in_place_def(), {x}); }
Tensor gelu_erf(TensorArg x) { return emit_one(gelu_erf_def(), {x}); }
Tensor geluerf_(TensorArg x) { return emit_one(gelu_erf_in_place_def(), {x}); }
Tensor swish(TensorArg x) { return emit_one(swish_def(), {x}); }
Tensor swish_(TensorArg x) { return emit_one(swish_in_place_def(), {x}); }
Tensor sigmoid(TensorArg x) { return emit_one(sigmoid_def(), {x}); }
Tensor tanh(TensorArg x) { return emit_one(tanh_def(), {x}); }

}  // namespace sluice::ops
