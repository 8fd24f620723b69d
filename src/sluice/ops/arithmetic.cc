#include "sluice/ops/arithmetic.h"

#include <cmath>

#include "sluice/ops/compare.h"
#include "sluice/ops/elementwise.h"
#include "sluice/ops/integer_functors.h"

namespace sluice::ops {
namespace {

using namespace elementwise;  // NOLINT
using simd::F1;

constexpr auto kAdd = []<typename E>(E a, E b) -> E {
  if constexpr (std::is_integral_v<E>)
    return integer::Add{}(a, b);
  else
    return a + b;
};
constexpr auto kSub = []<typename E>(E a, E b) -> E {
  if constexpr (std::is_integral_v<E>)
    return integer::Sub{}(a, b);
  else
    return a - b;
};
constexpr auto kMul = []<typename E>(E a, E b) -> E {
  if constexpr (std::is_integral_v<E>)
    return integer::Mul{}(a, b);
  else
    return a * b;
};
constexpr auto kDiv = []<typename E>(E a, E b) -> E {
  if constexpr (std::is_integral_v<E>)
    return integer::Div{}(a, b);
  else
    return a / b;
};
constexpr auto kPow = [](double base, double exponent) { return std::pow(base, exponent); };
constexpr auto kNeg = []<typename E>(E x) -> E {
  if constexpr (std::is_integral_v<E>)
    return integer::Neg{}(x);
  else
    return -x;
};
constexpr auto kAbs = []<typename E>(E x) -> E {
  if constexpr (std::is_integral_v<E>)
    return integer::Abs{}(x);
  else
    return std::fabs(x);
};
constexpr auto kAbsGrad = [](double x, double g) { return (x > 0) ? g : (x < 0) ? -g : 0; };
constexpr auto kMax = []<typename E>(E a, E b) -> E { return a > b || a != a ? a : b; };
constexpr auto kMin = []<typename E>(E a, E b) -> E { return a < b || a != a ? a : b; };

OpDef binary(OpDef d, const char* integers) {
  d.doc += fmt::format(
      " (C1) Numbers of a dtype that devices have; {}. (C2) Both of one dtype, the result's. (C3) "
      "Shapes broadcast.",
      integers);
  d.samples = binary_samples({-2, 2});
  for (const DType dtype : {i32, u32, u8}) {
    d.samples.push_back(integer_sample(dtype, {{3, 7}, {7}}));
    d.samples.push_back(integer_sample(dtype, {{19}, {19}}));
  }
  d.must_fail = {{"(C1)", {{Shape{2}, f64, {}}, {Shape{2}, f64, {}}}, {}},
                 {"(C1)", {{Shape{2}, boolean, {}}, {Shape{2}, boolean, {}}}, {}},
                 {"(C2)", {f32_spec({2}), i32_spec({2})}, {}},
                 {"(C3)", {f32_spec({2, 3}), f32_spec({2})}, {}}};
  return d;
}

OpDef unary(OpDef d, std::pair<double, double> domain, double flops = 1) {
  d.doc += d.infer == infer_float ? " (C1) Floating point."
                                  : " (C1) A number of a dtype that devices have.";
  d.flops_per_element = flops;
  d.samples = unary_samples(domain);
  d.must_fail = {{"(C1)", {{Shape{2}, f64, {}}}, {}}, {"(C1)", {{Shape{2}, boolean, {}}}, {}}};
  if (d.infer == infer_float) d.must_fail.push_back({"(C1)", {i32_spec({2})}, {}});
  return d;
}

/// Completes the definition of an operator that only gradients use. It has two operands of one
/// shape.
OpDef helper(OpDef d, std::pair<double, double> domain, FormulaFn formula, double flops = 2) {
  d.audience = Audience::kOperators;
  d.formula = formula;
  d.doc += " (C1) Floating point. (C2) Both of one dtype. (C3) Shapes broadcast.";
  d.flops_per_element = flops;
  d.samples = pair_samples(domain);
  d.must_fail = {{"(C1)", {i32_spec({2}), i32_spec({2})}, {}},
                 {"(C2)", {f32_spec({2}), {Shape{2}, f16, {}}}, {}},
                 {"(C3)", {f32_spec({2, 3}), f32_spec({2})}, {}}};
  return d;
}

const Shape& in_shape(GradContext& g, int i) { return g.op().input(i).shape; }

Tensors add_grad(GradContext& g) {
  Tensors grads;
  for (int i = 0; i < 2; ++i)
    grads.push_back(g.needs(i) ? reduce_to(g.grad(0), in_shape(g, i)) : Tensor{});
  return grads;
}

Tensors sub_grad(GradContext& g) {
  Tensors grads(2);
  if (g.needs(0)) grads[0] = reduce_to(g.grad(0), in_shape(g, 0));
  if (g.needs(1)) grads[1] = neg(reduce_to(g.grad(0), in_shape(g, 1)));
  return grads;
}

Tensors mul_grad(GradContext& g) {
  Tensors grads(2);
  if (g.needs(0)) grads[0] = reduce_to(mul(g.grad(0), g.input(1)), in_shape(g, 0));
  if (g.needs(1)) grads[1] = reduce_to(mul(g.grad(0), g.input(0)), in_shape(g, 1));
  return grads;
}

// With y = a/b: dy/da = 1/b, dy/db = -y/b.
Tensors div_grad(GradContext& g) {
  Tensors grads(2);
  if (g.needs(0)) grads[0] = reduce_to(div(g.grad(0), g.input(1)), in_shape(g, 0));
  if (g.needs(1)) {
    const Tensor d = div(mul(g.grad(0), g.output(0)), g.input(1));
    grads[1] = neg(reduce_to(d, in_shape(g, 1)));
  }
  return grads;
}

// With y = aᵉ: dy/da = e·aᵉ⁻¹ and dy/de = y·ln a. The formulas give 0·∞ for dy/da at e = 0, and for
// dy/de at a = 0 with e ≥ 0. The gradient must be 0 there. dy/da then uses the exponent 0 instead
// of e - 1; the exponent is usually a scalar, so this is cheap. dy/de then takes the logarithm of 1
// instead of a.
Tensors pow_grad(GradContext& g) {
  Tensors grads(2);
  const Tensor a = g.input(0);
  const Tensor e = g.input(1);
  const Tensor zero = scalar_like(e, 0);
  if (g.needs(0)) {
    const Tensor power = where(equal(e, zero), zero, e - 1.0);
    grads[0] = reduce_to(mul(mul(g.grad(0), e), pow(a, power)), in_shape(g, 0));
  }
  if (g.needs(1)) {
    const Tensor is_flat = logical_and(equal(a, zero), greater_equal(e, zero));
    const Tensor safe = where(is_flat, scalar_like(a, 1), a);
    grads[1] = reduce_to(mul(mul(g.grad(0), g.output(0)), log(safe)), in_shape(g, 1));
  }
  return grads;
}

// --- maximum and minimum of any number of operands ---

struct PickOptions {
  int64_t index = 0;  ///< Number of the operand whose gradient this is.
  static auto fields(auto&& use) { return use(field("index", &PickOptions::index)); }
};

/// An operand that broadcasts to the shape of the output: its element for an output element.
template <typename E>
class Broadcast {
 public:
  Broadcast(const KernelArgs& k, int i)
      : x_(k.in<E>(i).data()), at_(k.in_shape(i), k.out_shape(0)) {}
  E operator()(int64_t o) const { return x_[at_(o)]; }

 private:
  const E* x_;
  BroadcastIndex at_;
};

template <typename T, typename Functor, auto formula>
void extreme_reference(const KernelArgs& k) {
  visit_element<T>(k.out_dtype(0), [&]<typename E>(E) {
    std::vector<Broadcast<E>> operands;
    for (int i = 0; i < k.op().inputs(); ++i) operands.emplace_back(k, i);
    int64_t o = 0;
    for (E& y : k.out<E>(0)) {
      E best{};
      for (const Broadcast<E>& operand : operands) {
        const E x = operand(o);
        if (&operand == &operands.front()) {
          best = x;
        } else if constexpr (std::is_same_v<E, float>) {
          best = Functor{}(F1(best), F1(x)).v;
        } else {
          best = formula(best, x);
        }
      }
      y = best;
      ++o;
    }
  });
}

/// Operands are x0 … xn-1 and g. The result is g where operand `index` is the first largest
/// (smallest) of the xi, else 0.
template <typename T, auto formula>
void pick_reference(const KernelArgs& k) {
  const int n = k.op().inputs() - 1;
  const auto index = static_cast<int>(k.options<PickOptions>().index);
  std::vector<Broadcast<T>> operands;
  for (int i = 0; i <= n; ++i) operands.emplace_back(k, i);
  int64_t o = 0;
  for (T& y : k.out<T>(0)) {
    const auto value = [&](int i) { return at(operands, i)(o); };
    int first = 0;
    for (int i = 1; i < n; ++i) {
      const T best = value(first);
      const bool beaten =
          best == best &&
          (value(i) != value(i) || (formula(best, value(i)) == value(i) && value(i) != best));
      if (beaten) first = i;
    }
    y = first == index ? value(n) : T{0};
    ++o;
  }
}

std::vector<TensorSpec> infer_extreme(const OpView& op) {
  require(op.inputs() > 0, "{} (C4): requires at least one operand, got none", op.def().name);
  return infer_arithmetic(op);
}

std::vector<TensorSpec> infer_pick(const OpView& op) {
  const int64_t index = op.options<PickOptions>().index;
  require(op.inputs() > 1 && index >= 0 && index < op.inputs() - 1,
          "{} (C4): index must be in [0, {}) for {} operands, got {}", op.def().name,
          op.inputs() - 1, op.inputs(), index);
  return infer_float(op);
}

template <const OpDef& (*pick)()>
Tensors extreme_grad(GradContext& g) {
  const int n = g.op().inputs();
  Tensors grads;
  std::vector<TensorArg> operands;
  for (int i = 0; i < n; ++i) operands.push_back(g.input(i));
  operands.push_back(g.grad(0));
  for (int i = 0; i < n; ++i) {
    grads.push_back(g.needs(i)
                        ? reduce_to(emit_one(pick(), operands, PickOptions{i}), in_shape(g, i))
                        : Tensor{});
  }
  return grads;
}

template <typename Functor, auto formula>
OpDef define_extreme(const char* name, const char* word, GradFn grad) {
  OpDef d;
  d.type = Functor::kType;
  d.name = name;
  d.doc = fmt::format(
      "The {} of the operands, NaN where one is. (C1) Numbers of a dtype that devices have. (C2) "
      "All of one dtype. "
      "(C3) Shapes broadcast. (C4) At least one operand.",
      word);
  d.inputs = {{"x"}};
  d.variadic = true;
  d.outputs = {"y"};
  d.traits = kElementwise;
  d.may_coincide = {{0, 0}};
  d.infer = infer_extreme;
  d.grad = grad;
  d.reference_float = extreme_reference<float, Functor, formula>;
  d.reference_double = extreme_reference<double, Functor, formula>;
  d.flops = [](const OpView& op) {
    return static_cast<double>(op.output(0).elements()) * (op.inputs() - 1);
  };
  d.samples = binary_samples({-2, 2});
  d.samples.push_back({.inputs = {f32_spec({7})}});
  d.samples.push_back({.inputs = {f32_spec({3, 1}), f32_spec({2, 1, 5}), f32_spec({3, 5})}});
  d.samples.push_back(integer_sample(i32, {{4, 5}, {5}, {4, 5}}));
  d.samples.push_back(integer_sample(u8, {{17}, {17}}));
  d.must_fail = {{"(C1)", {{Shape{2}, boolean, {}}}, {}},
                 {"(C2)", {f32_spec({2}), i32_spec({2})}, {}},
                 {"(C3)", {f32_spec({2}), f32_spec({3})}, {}},
                 {"(C4)", {}, {}}};
  return d;
}

template <auto formula>
OpDef define_pick(const char* type, const char* name) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.audience = Audience::kOperators;
  d.doc =
      "The operands are x0 … and g. The result is g where x[index] is the first operand equal to "
      "the forward result, else 0. (C1) Floating point. (C2) All of one dtype. (C3) Shapes "
      "broadcast. (C4) index names an operand before g.";
  d.inputs = {{"x"}};
  d.variadic = true;
  d.outputs = {"y"};
  d.set_options(PickOptions{});
  d.traits = kElementwise;
  d.may_coincide = {{0, 0}};
  d.infer = infer_pick;
  d.formula = times_gradient;
  d.reference_float = pick_reference<float, formula>;
  d.reference_double = pick_reference<double, formula>;
  d.flops_per_element = 2;
  for (const int64_t index : {0, 1}) {
    d.samples.push_back({.inputs = {f32_spec({3, 5}), f32_spec({5}), f32_spec({3, 5})},
                         .options = to_attrs(PickOptions{index})});
  }
  d.must_fail = {{"(C1)", {i32_spec({2}), i32_spec({2})}, d.options},
                 {"(C2)", {f32_spec({2}), {Shape{2}, f16, {}}}, d.options},
                 {"(C3)", {f32_spec({2}), f32_spec({3})}, d.options},
                 {"(C4)", {f32_spec({2}), f32_spec({2})}, to_attrs(PickOptions{1})}};
  return d;
}

const OpDef& maximum_grad_def() {
  static const OpDef def = define_pick<kMax>("MaxArgGrad", "maximum_grad");
  return def;
}
const OpDef& minimum_grad_def() {
  static const OpDef def = define_pick<kMin>("MinArgGrad", "minimum_grad");
  return def;
}

// --- gradients of one operand ---

const OpDef& abs_grad_def() {
  static const OpDef def = helper(define<functor::AbsGrad, kAbsGrad, 2>(
                                      "abs_grad", "g·sign(x).", {"x", "g"}, infer_float, nullptr),
                                  {-2, 2}, times_gradient);
  return def;
}

Tensors sqrt_grad_formula(const OpView&, const Tensors& in) { return {in[1] / (in[0] * 2.0)}; }

const OpDef& sqrt_grad_def() {
  static const OpDef def =
      helper(define<functor::SqrtGrad, [](double y, double g) { return g / (2 * y); }, 2>(
                 "sqrt_grad", "g / 2y.", {"y", "g"}, infer_float, nullptr),
             {0.1, 2}, sqrt_grad_formula);
  return def;
}

Tensors neg_grad(GradContext& g) { return {neg(g.grad(0))}; }
Tensors abs_grad(GradContext& g) { return {emit_one(abs_grad_def(), {g.input(0), g.grad(0)})}; }
Tensors sqrt_grad(GradContext& g) { return {emit_one(sqrt_grad_def(), {g.output(0), g.grad(0)})}; }
Tensors exp_grad(GradContext& g) { return {mul(g.grad(0), g.output(0))}; }
Tensors log_grad(GradContext& g) { return {div(g.grad(0), g.input(0))}; }

OpDef with_index_rule(IndexRule rule, OpDef d) {
  d.index_rule = rule;
  return d;
}

const OpDef& add_in_place_def() {
  static const OpDef def = in_place(add_def(), "AddLhsInplace", "add_");
  return def;
}

const OpDef& exp_in_place_def() {
  static const OpDef def = in_place(exp_def(), "ExpInplace", "exp_");
  return def;
}

}  // namespace

const OpDef& add_def() {
  static const OpDef def = with_index_rule(
      IndexRule::kAdd, binary(define<functor::Add, kAdd, 2, Integers::kTaken>(
                                  "add", "lhs + rhs.", {"lhs", "rhs"}, infer_arithmetic, add_grad),
                              "integers wrap around"));
  return def;
}

const OpDef& sub_def() {
  static const OpDef def = with_index_rule(
      IndexRule::kSub, binary(define<functor::Sub, kSub, 2, Integers::kTaken>(
                                  "sub", "lhs - rhs.", {"lhs", "rhs"}, infer_arithmetic, sub_grad),
                              "integers wrap around"));
  return def;
}

const OpDef& mul_def() {
  static const OpDef def = with_index_rule(
      IndexRule::kMul, binary(define<functor::Mul, kMul, 2, Integers::kTaken>(
                                  "mul", "lhs · rhs.", {"lhs", "rhs"}, infer_arithmetic, mul_grad),
                              "integers wrap around"));
  return def;
}

const OpDef& div_def() {
  static const OpDef def = [] {
    OpDef d = binary(define<functor::Div, kDiv, 2, Integers::kTaken>(
                         "div", "lhs / rhs.", {"lhs", "rhs"}, infer_arithmetic, div_grad),
                     "integers give the floor of the quotient, and 0 for x / 0");
    for (Sample& s : d.samples) s.domain = {0.5, 2};
    return with_index_rule(IndexRule::kDiv, std::move(d));
  }();
  return def;
}

const OpDef& pow_def() {
  static const OpDef def = [] {
    OpDef d = define<functor::Pow, kPow, 2>(
        "pow",
        "base to the power exponent. (C1) Floating point. (C2) Both of one dtype. (C3) Shapes "
        "broadcast.",
        {"base", "exponent"}, infer_float, pow_grad);
    d.flops_per_element = 60;
    d.samples = binary_samples({0.5, 2});
    d.must_fail = {{"(C1)", {i32_spec({2}), i32_spec({2})}, {}},
                   {"(C2)", {f32_spec({2}), {Shape{2}, f16, {}}}, {}},
                   {"(C3)", {f32_spec({2}), f32_spec({3})}, {}}};
    return d;
  }();
  return def;
}

const OpDef& maximum_def() {
  static const OpDef def =
      define_extreme<functor::Max, kMax>("maximum", "largest", extreme_grad<maximum_grad_def>);
  return def;
}

const OpDef& minimum_def() {
  static const OpDef def =
      define_extreme<functor::Min, kMin>("minimum", "smallest", extreme_grad<minimum_grad_def>);
  return def;
}

const OpDef& neg_def() {
  static const OpDef def = unary(define<functor::Neg, kNeg, 1, Integers::kTaken>(
                                     "neg", "-x.", {"x"}, infer_arithmetic, neg_grad),
                                 {-2, 2});
  return def;
}

const OpDef& abs_def() {
  static const OpDef def = unary(define<functor::Abs, kAbs, 1, Integers::kTaken>(
                                     "abs", "|x|.", {"x"}, infer_arithmetic, abs_grad),
                                 {0.1, 2});
  return def;
}

const OpDef& sqrt_def() {
  static const OpDef def = unary(define<functor::Sqrt, [](double x) { return std::sqrt(x); }, 1>(
                                     "sqrt", "√x.", {"x"}, infer_float, sqrt_grad),
                                 {0.25, 3});
  return def;
}

const OpDef& exp_def() {
  static const OpDef def = unary(define<functor::Exp, [](double x) { return std::exp(x); }, 1>(
                                     "exp", "eˣ.", {"x"}, infer_float, exp_grad),
                                 {-3, 3}, 12);
  return def;
}

const OpDef& log_def() {
  static const OpDef def = unary(define<functor::Log, [](double x) { return std::log(x); }, 1>(
                                     "log", "The natural logarithm.", {"x"}, infer_float, log_grad),
                                 {0.25, 4}, 16);
  return def;
}

std::vector<const OpDef*> arithmetic_ops() {
  return {&add_def(), &add_in_place_def(), &sub_def(),          &mul_def(),     &div_def(),
          &pow_def(), &maximum_def(),      &maximum_grad_def(), &minimum_def(), &minimum_grad_def(),
          &neg_def(), &abs_def(),          &abs_grad_def(),     &sqrt_def(),    &sqrt_grad_def(),
          &exp_def(), &exp_in_place_def(), &log_def()};
}

Tensor add(TensorArg lhs, TensorArg rhs) { return emit_one(add_def(), {lhs, rhs}); }
Tensor sub(TensorArg lhs, TensorArg rhs) { return emit_one(sub_def(), {lhs, rhs}); }
Tensor mul(TensorArg lhs, TensorArg rhs) { return emit_one(mul_def(), {lhs, rhs}); }
Tensor div(TensorArg lhs, TensorArg rhs) { return emit_one(div_def(), {lhs, rhs}); }
Tensor add_(TensorArg lhs, TensorArg rhs) { return emit_one(add_in_place_def(), {lhs, rhs}); }
Tensor pow(TensorArg base, TensorArg exponent) { return emit_one(pow_def(), {base, exponent}); }
Tensor maximum(TensorArg a, TensorArg b) { return emit_one(maximum_def(), {a, b}); }
Tensor maximum(const std::vector<TensorArg>& ts, std::source_location where) {
  return emit_one(maximum_def(), at_call(ts, where));
}
Tensor minimum(TensorArg a, TensorArg b) { return emit_one(minimum_def(), {a, b}); }
Tensor minimum(const std::vector<TensorArg>& ts, std::source_location where) {
  return emit_one(minimum_def(), at_call(ts, where));
}
Tensor neg(TensorArg x) { return emit_one(neg_def(), {x}); }
Tensor abs(TensorArg x) { return emit_one(abs_def(), {x}); }
Tensor sqrt(TensorArg x) { return emit_one(sqrt_def(), {x}); }
Tensor exp(TensorArg x) { return emit_one(exp_def(), {x}); }
Tensor exp_(TensorArg x) { return emit_one(exp_in_place_def(), {x}); }
Tensor log(TensorArg x) { return emit_one(log_def(), {x}); }

Tensor add(TensorArg lhs, double rhs) { return add(lhs, scalar_arg(rhs, lhs)); }
Tensor add(double lhs, TensorArg rhs) { return add(scalar_arg(lhs, rhs), rhs); }
Tensor sub(TensorArg lhs, double rhs) { return sub(lhs, scalar_arg(rhs, lhs)); }
Tensor sub(double lhs, TensorArg rhs) { return sub(scalar_arg(lhs, rhs), rhs); }
Tensor mul(TensorArg lhs, double rhs) { return mul(lhs, scalar_arg(rhs, lhs)); }
Tensor mul(double lhs, TensorArg rhs) { return mul(scalar_arg(lhs, rhs), rhs); }
Tensor div(TensorArg lhs, double rhs) { return div(lhs, scalar_arg(rhs, lhs)); }
Tensor div(double lhs, TensorArg rhs) { return div(scalar_arg(lhs, rhs), rhs); }
Tensor add_(TensorArg lhs, double rhs) { return add_(lhs, scalar_arg(rhs, lhs)); }
Tensor pow(TensorArg base, double exponent) { return pow(base, scalar_arg(exponent, base)); }
Tensor pow(double base, TensorArg exponent) { return pow(scalar_arg(base, exponent), exponent); }
Tensor maximum(TensorArg a, double b) { return maximum(a, scalar_arg(b, a)); }
Tensor maximum(double a, TensorArg b) { return maximum(scalar_arg(a, b), b); }
Tensor minimum(TensorArg a, double b) { return minimum(a, scalar_arg(b, a)); }
Tensor minimum(double a, TensorArg b) { return minimum(scalar_arg(a, b), b); }

TensorArg scalar_arg(double value, const TensorArg& like) {
  return {scalar_like(like, value), like.where};
}

Tensor scalar_like(const Tensor& t, double value) {
  require(can_store(t.dtype(), value),
          "a number combined with '{}', which is {}, must be {}, got {}; cast '{}' first", t.name(),
          to_string(t.spec()), taken_by(t.dtype()), value, t.name());
  return t.graph().scalar(value, t.dtype());
}

}  // namespace sluice::ops

namespace sluice {

Tensor operator+(TensorArg a, TensorArg b) { return ops::add(a, b); }
Tensor operator-(TensorArg a, TensorArg b) { return ops::sub(a, b); }
Tensor operator*(TensorArg a, TensorArg b) { return ops::mul(a, b); }
Tensor operator/(TensorArg a, TensorArg b) { return ops::div(a, b); }
Tensor operator-(TensorArg x) { return ops::neg(x); }
Tensor operator+(TensorArg a, double b) { return ops::add(a, b); }
Tensor operator-(TensorArg a, double b) { return ops::sub(a, b); }
Tensor operator*(TensorArg a, double b) { return ops::mul(a, b); }
Tensor operator/(TensorArg a, double b) { return ops::div(a, b); }
Tensor operator+(double a, TensorArg b) { return ops::add(a, b); }
Tensor operator-(double a, TensorArg b) { return ops::sub(a, b); }
Tensor operator*(double a, TensorArg b) { return ops::mul(a, b); }
Tensor operator/(double a, TensorArg b) { return ops::div(a, b); }
Tensor& operator+=(Tensor& a, TensorArg b) { return a = ops::add_({a, b.where}, b); }
Tensor& operator+=(Tensor& a, double b) { return a = ops::add_(a, b); }

}  // namespace sluice
