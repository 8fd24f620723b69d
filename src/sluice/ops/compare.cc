#include "sluice/ops/compare.h"

#include <cmath>

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/elementwise.h"

namespace sluice::ops {

namespace functor {
Clip Clip::make(const double* h) { return {static_cast<float>(h[0]), static_cast<float>(h[1])}; }
ClipGrad ClipGrad::make(const double* h) {
  return {static_cast<float>(h[0]), static_cast<float>(h[1])};
}
}  // namespace functor

namespace {

using namespace elementwise;  // NOLINT

// Predicates are exact: scalar code defines the same bits as vector code.
constexpr auto kEqual = [](auto a, auto b) { return a == b; };
constexpr auto kNotEqual = [](auto a, auto b) { return a != b; };
constexpr auto kGreater = [](auto a, auto b) { return a > b; };
constexpr auto kGreaterEqual = [](auto a, auto b) { return a >= b; };
constexpr auto kLess = [](auto a, auto b) { return a < b; };
constexpr auto kLessEqual = [](auto a, auto b) { return a <= b; };
constexpr auto kAnd = [](bool a, bool b) { return a && b; };
constexpr auto kOr = [](bool a, bool b) { return a || b; };
constexpr auto kNot = [](bool a) { return !a; };
constexpr auto kIsNan = [](auto x) { return x != x; };
constexpr auto kIsInf = [](auto x) { return std::isinf(x); };
constexpr auto kIsFinite = [](auto x) { return std::isfinite(x); };
constexpr auto kClip = [](const double* h, double x) {
  return std::isnan(x) ? x : std::min(std::max(x, h[0]), h[1]);
};
constexpr auto kClipGrad = [](const double* h, double y, double g) {
  return h[0] < y && y < h[1] ? g : 0.0;
};

template <typename T, int N, auto predicate>
void predicate_reference(const KernelArgs& k) {
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    if constexpr (
        requires(E x) { predicate(x); } || requires(E x) { predicate(x, x); })
      map<N, E, bool>(k, predicate);
  });
}

template <InferFn operands>
std::vector<TensorSpec> infer_predicate(const OpView& op) {
  std::vector<TensorSpec> y = operands(op);
  y[0].dtype = boolean;
  return y;
}

std::vector<TensorSpec> infer_logical(const OpView& op) {
  for (int i = 0; i < op.inputs(); ++i) {
    require(op.input(i).dtype == boolean, "{} (C1): operand {} must be bool, got {}", op.def().name,
            i, to_string(op.input(i)));
  }
  return {broadcast_operands(op)};
}

template <int N, auto predicate>
OpDef define_predicate(const char* type, const char* name, const char* doc, InferFn infer) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = doc;
  d.inputs = N == 1 ? std::vector<InputDef>{{"x"}} : std::vector<InputDef>{{"lhs"}, {"rhs"}};
  d.outputs = {"y"};
  d.traits = kElementwise | kZeroGradient;
  d.infer = infer;
  d.reference_float = predicate_reference<float, N, predicate>;
  d.reference_double = predicate_reference<double, N, predicate>;
  d.flops_per_element = 1;
  return d;
}

template <auto predicate>
OpDef comparison(const char* type, const char* name, const char* sign, InferFn infer) {
  const std::string doc = fmt::format(
      "lhs {} rhs, as bool. (C1) Operands of a dtype that devices have{}. (C2) Both of one dtype. "
      "(C3) Shapes "
      "broadcast.",
      sign, infer == infer_predicate<infer_numeric> ? "" : ", not bool");
  OpDef d = define_predicate<2, predicate>(type, name, doc.c_str(), infer);
  d.samples = binary_samples({-2, 2});
  for (const DType dtype : {i32, u32, u8})
    d.samples.push_back(integer_sample(dtype, {{5, 7}, {7}}));
  if (infer == infer_predicate<infer_numeric>)
    d.samples.push_back(integer_sample(boolean, {{17}, {17}}));
  Sample limits{.inputs = {f32_spec({4}), f32_spec({4})}};
  const float nan = std::nanf("");
  limits.values = {HostTensor::of<float>({4}, f32, {nan, 1, nan, HUGE_VALF}),
                   HostTensor::of<float>({4}, f32, {nan, nan, 1, HUGE_VALF})};
  d.samples.push_back(limits);
  for (Sample& s : d.samples) s.gradient = false;
  d.must_fail = {{"(C1)", {{Shape{2}, f64, {}}, {Shape{2}, f64, {}}}, {}},
                 {"(C2)", {f32_spec({2}), i32_spec({2})}, {}},
                 {"(C3)", {f32_spec({2}), f32_spec({3})}, {}}};
  return d;
}

template <int N, auto predicate>
OpDef logical(const char* type, const char* name, const char* formula) {
  const std::string doc = fmt::format("{}. (C1) Operands are bool.{}", formula,
                                      N == 2 ? " (C3) Shapes broadcast." : "");
  OpDef d = define_predicate<N, predicate>(type, name, doc.c_str(), infer_logical);
  for (int i = 0; i < N; ++i) d.may_coincide.emplace_back(i, 0);
  for (const Shape& shape : {Shape{}, Shape{17}, Shape{3, 5}, Shape{0, 2}}) {
    d.samples.push_back(integer_sample(boolean, std::vector<Shape>(N, shape)));
  }
  d.must_fail = {{"(C1)", std::vector(N, f32_spec({2})), {}}};
  if (N == 2) {
    d.samples.push_back(integer_sample(boolean, {{4, 1}, {3}}));
    d.must_fail.push_back({"(C3)", {{Shape{2}, boolean, {}}, {Shape{3}, boolean, {}}}, {}});
  }
  return d;
}

template <auto predicate>
OpDef classification(const char* type, const char* name, const char* doc) {
  OpDef d = define_predicate<1, predicate>(type, name, doc, infer_predicate<infer_float>);
  d.doc += " (C1) x is floating point.";
  d.samples = unary_samples({-2, 2});
  Sample limits{.inputs = {f32_spec({5})}};
  limits.values = {
      HostTensor::of<float>({5}, f32, {std::nanf(""), HUGE_VALF, -HUGE_VALF, 0, 3e38f})};
  d.samples.push_back(limits);
  for (Sample& s : d.samples) s.gradient = false;
  d.must_fail = {{"(C1)", {i32_spec({2})}, {}}};
  return d;
}

const OpDef& not_equal_def() {
  static const OpDef def =
      comparison<kNotEqual>("NotEqual", "not_equal", "≠", infer_predicate<infer_numeric>);
  return def;
}
const OpDef& greater_equal_def() {
  static const OpDef def = comparison<kGreaterEqual>("GreaterOrEqual", "greater_equal", "≥",
                                                     infer_predicate<infer_arithmetic>);
  return def;
}
const OpDef& less_def() {
  static const OpDef def =
      comparison<kLess>("Less", "less", "<", infer_predicate<infer_arithmetic>);
  return def;
}
const OpDef& less_equal_def() {
  static const OpDef def =
      comparison<kLessEqual>("LessOrEqual", "less_equal", "≤", infer_predicate<infer_arithmetic>);
  return def;
}
const OpDef& isnan_def() {
  static const OpDef def = classification<kIsNan>("IsNaN", "isnan", "Whether x is NaN.");
  return def;
}
const OpDef& isinf_def() {
  static const OpDef def = classification<kIsInf>("IsInf", "isinf", "Whether x is infinite.");
  return def;
}
const OpDef& isfinite_def() {
  static const OpDef def =
      classification<kIsFinite>("IsFinite", "isfinite", "Whether x is neither NaN nor infinite.");
  return def;
}

// --- where ---

std::vector<TensorSpec> infer_where(const OpView& op) {
  require(op.input(0).dtype == boolean, "where (C1): condition must be bool, got {}",
          to_string(op.input(0)));
  for (const int i : {1, 2})
    require_device_dtype(op.input(i), i == 1 ? "where (C1): lhs" : "where (C1): rhs");
  require(op.input(1).dtype == op.input(2).dtype,
          "where (C2): rhs must have the dtype of lhs, {}, got {}; cast one",
          name_of(op.input(1).dtype), to_string(op.input(2)));
  TensorSpec y = broadcast_operands(op);
  y.dtype = op.input(1).dtype;
  return {y};
}

template <typename T>
void where_reference(const KernelArgs& k) {
  const BroadcastIndex at_condition(k.in_shape(0), k.out_shape(0));
  const BroadcastIndex at_lhs(k.in_shape(1), k.out_shape(0));
  const BroadcastIndex at_rhs(k.in_shape(2), k.out_shape(0));
  const bool* condition = k.in<bool>(0).data();
  visit_element<T>(k.out_dtype(0), [&]<typename E>(E) {
    const E* lhs = k.in<E>(1).data();
    const E* rhs = k.in<E>(2).data();
    const auto y = k.out<E>(0);
    for (size_t o = 0; o < y.size(); ++o) {
      const auto i = static_cast<int64_t>(o);
      y[o] = condition[at_condition(i)] ? lhs[at_lhs(i)] : rhs[at_rhs(i)];
    }
  });
}

Tensors where_grad(GradContext& g) {
  Tensors grads(3);
  if (!g.needs(1) && !g.needs(2)) return grads;
  const Tensor d = g.grad(0);
  const Tensor zero = scalar_like(d, 0);
  const Tensor condition = g.input(0);
  if (g.needs(1)) grads[1] = reduce_to(where(condition, d, zero), g.op().input(1).shape);
  if (g.needs(2)) grads[2] = reduce_to(where(condition, zero, d), g.op().input(2).shape);
  return grads;
}

// --- clip ---

std::vector<TensorSpec> infer_clip(const OpView& op) {
  const auto o = op.options<ClipOptions>();
  std::vector<TensorSpec> y = infer_float(op);
  require(o.min <= o.max, "{} (C4): min {} is above max {}", op.def().name, o.min, o.max);
  return y;
}

const OpDef& clip_grad_def() {
  static const OpDef def = [] {
    OpDef d = define<functor::ClipGrad, kClipGrad, 2>(
        "clip_grad",
        "g where min < y < max, else 0. (C1) Floating point. (C2) Both of one dtype. (C3) Shapes "
        "broadcast. (C4) min "
        "is not above max.",
        {"y", "g"}, infer_clip, nullptr);
    d.audience = Audience::kOperators;
    d.formula = times_gradient;
    d.set_options(ClipOptions{});
    d.samples = pair_samples({-2, 2});
    for (Sample& s : d.samples) s.options = to_attrs(ClipOptions{-1, 0.5});
    d.must_fail = {{"(C1)", {i32_spec({2}), i32_spec({2})}, d.options},
                   {"(C2)", {f32_spec({2}), {Shape{2}, f16, {}}}, d.options},
                   {"(C3)", {f32_spec({2, 3}), f32_spec({2})}, d.options},
                   {"(C4)", {f32_spec({2}), f32_spec({2})}, to_attrs(ClipOptions{2, 1})}};
    return d;
  }();
  return def;
}

Tensors clip_grad(GradContext& g) {
  return {emit_one(clip_grad_def(), {g.output(0), g.grad(0)}, g.options<ClipOptions>())};
}

/// Makes a bool constant as an operand of the call that `like` is an operand of.
TensorArg constant(bool value, const TensorArg& like) {
  return {like->graph().scalar(value ? 1 : 0, boolean), like.where};
}

Tensor as_bool(const TensorArg& x) {
  if (x->dtype() == boolean) return x;
  return cast(x, boolean);
}

}  // namespace

const OpDef& equal_def() {
  static const OpDef def =
      comparison<kEqual>("Equal", "equal", "=", infer_predicate<infer_numeric>);
  return def;
}

const OpDef& greater_def() {
  static const OpDef def =
      comparison<kGreater>("Greater", "greater", ">", infer_predicate<infer_arithmetic>);
  return def;
}

const OpDef& logical_and_def() {
  static const OpDef def = logical<2, kAnd>("And", "logical_and", "lhs and rhs");
  return def;
}

const OpDef& logical_or_def() {
  static const OpDef def = logical<2, kOr>("Or", "logical_or", "lhs or rhs");
  return def;
}

const OpDef& logical_not_def() {
  static const OpDef def = logical<1, kNot>("Not", "logical_not", "not x");
  return def;
}

const OpDef& where_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Where";
    d.name = "where";
    d.doc =
        "lhs where the condition holds, else rhs. (C1) The condition is bool, lhs and rhs have a "
        "dtype that devices "
        "have. (C2) Both of one dtype. (C3) Shapes broadcast.";
    d.inputs = {{"condition"}, {"lhs"}, {"rhs"}};
    d.outputs = {"y"};
    d.traits = kElementwise;
    d.may_coincide = {{1, 0}, {2, 0}};
    d.infer = infer_where;
    d.grad = where_grad;
    d.reference_float = where_reference<float>;
    d.reference_double = where_reference<double>;
    d.flops_per_element = 1;
    const std::vector<std::vector<Shape>> shapes{{{}, {}, {}},
                                                 {{17}, {17}, {17}},
                                                 {{3, 1}, {5}, {3, 5}},
                                                 {{5}, {}, {3, 5}},
                                                 {{0, 2}, {2}, {2}}};
    for (const auto& s : shapes) {
      for (const DType dtype : {f32, i32}) {
        Sample sample = integer_sample(boolean, {s[0]});
        sample.inputs.push_back({s[1], dtype, {}});
        sample.inputs.push_back({s[2], dtype, {}});
        sample.gradient = dtype == f32;
        d.samples.push_back(std::move(sample));
      }
    }
    const TensorSpec condition{Shape{2}, boolean, {}};
    d.must_fail = {{"(C1)", {f32_spec({2}), f32_spec({2}), f32_spec({2})}, {}},
                   {"(C1)", {condition, {Shape{2}, f64, {}}, {Shape{2}, f64, {}}}, {}},
                   {"(C2)", {condition, f32_spec({2}), i32_spec({2})}, {}},
                   {"(C3)", {condition, f32_spec({3}), f32_spec({2})}, {}}};
    return d;
  }();
  return def;
}

const OpDef& clip_def() {
  static const OpDef def = [] {
    OpDef d = define<functor::Clip, kClip, 1>(
        "clip", "x held within [min, max]. (C1) x is floating point. (C4) min is not above max.",
        {"x"}, infer_clip, clip_grad);
    d.set_options(ClipOptions{});
    d.flops_per_element = 2;
    d.samples = unary_samples({-0.9, 0.9});
    for (Sample& s : d.samples) s.options = to_attrs(ClipOptions{-1, 1});
    d.samples.push_back({.inputs = {f32_spec({19})}, .options = to_attrs(ClipOptions{-10, -5})});
    d.samples.push_back({.inputs = {f32_spec({19})}, .options = d.options});
    d.samples.push_back(
        {.inputs = {f32_spec({19})}, .options = to_attrs(ClipOptions{-1, 0.5}), .gradient = false});
    d.must_fail = {{"(C1)", {i32_spec({2})}, d.options},
                   {"(C4)", {f32_spec({2})}, to_attrs(ClipOptions{2, 1})}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> compare_ops() {
  return {&equal_def(),       &not_equal_def(),  &greater_def(),     &greater_equal_def(),
          &less_def(),        &less_equal_def(), &logical_and_def(), &logical_or_def(),
          &logical_not_def(), &where_def(),      &clip_def(),        &clip_grad_def(),
          &isnan_def(),       &isinf_def(),      &isfinite_def()};
}

Tensor equal(TensorArg lhs, TensorArg rhs) { return emit_one(equal_def(), {lhs, rhs}); }
Tensor not_equal(TensorArg lhs, TensorArg rhs) { return emit_one(not_equal_def(), {lhs, rhs}); }
Tensor greater(TensorArg lhs, TensorArg rhs) { return emit_one(greater_def(), {lhs, rhs}); }
Tensor greater_equal(TensorArg lhs, TensorArg rhs) {
  return emit_one(greater_equal_def(), {lhs, rhs});
}
Tensor less(TensorArg lhs, TensorArg rhs) { return emit_one(less_def(), {lhs, rhs}); }
Tensor less_equal(TensorArg lhs, TensorArg rhs) { return emit_one(less_equal_def(), {lhs, rhs}); }

Tensor logical_and(TensorArg lhs, TensorArg rhs) {
  const TensorArg a(as_bool(lhs), lhs.where);
  return emit_one(logical_and_def(), {a, as_bool(rhs)});
}
Tensor logical_or(TensorArg lhs, TensorArg rhs) {
  const TensorArg a(as_bool(lhs), lhs.where);
  return emit_one(logical_or_def(), {a, as_bool(rhs)});
}
Tensor logical_not(TensorArg x) { return emit_one(logical_not_def(), {{as_bool(x), x.where}}); }

Tensor equal(TensorArg lhs, double rhs) { return equal(lhs, scalar_arg(rhs, lhs)); }
Tensor equal(double lhs, TensorArg rhs) { return equal(scalar_arg(lhs, rhs), rhs); }
Tensor not_equal(TensorArg lhs, double rhs) { return not_equal(lhs, scalar_arg(rhs, lhs)); }
Tensor not_equal(double lhs, TensorArg rhs) { return not_equal(scalar_arg(lhs, rhs), rhs); }
Tensor greater(TensorArg lhs, double rhs) { return greater(lhs, scalar_arg(rhs, lhs)); }
Tensor greater(double lhs, TensorArg rhs) { return greater(scalar_arg(lhs, rhs), rhs); }
Tensor greater_equal(TensorArg lhs, double rhs) { return greater_equal(lhs, scalar_arg(rhs, lhs)); }
Tensor greater_equal(double lhs, TensorArg rhs) { return greater_equal(scalar_arg(lhs, rhs), rhs); }
Tensor less(TensorArg lhs, double rhs) { return less(lhs, scalar_arg(rhs, lhs)); }
Tensor less(double lhs, TensorArg rhs) { return less(scalar_arg(lhs, rhs), rhs); }
Tensor less_equal(TensorArg lhs, double rhs) { return less_equal(lhs, scalar_arg(rhs, lhs)); }
Tensor less_equal(double lhs, TensorArg rhs) { return less_equal(scalar_arg(lhs, rhs), rhs); }
Tensor logical_and(TensorArg lhs, bool rhs) { return logical_and(lhs, constant(rhs, lhs)); }
Tensor logical_and(bool lhs, TensorArg rhs) { return logical_and(constant(lhs, rhs), rhs); }
Tensor logical_or(TensorArg lhs, bool rhs) { return logical_or(lhs, constant(rhs, lhs)); }
Tensor logical_or(bool lhs, TensorArg rhs) { return logical_or(constant(lhs, rhs), rhs); }

Tensor where(TensorArg condition, TensorArg lhs, double rhs) {
  return where(condition, lhs, scalar_arg(rhs, lhs));
}
Tensor where(TensorArg condition, double lhs, TensorArg rhs) {
  return where(condition, scalar_arg(lhs, rhs), rhs);
}
Tensor where(TensorArg condition, TensorArg lhs, TensorArg rhs) {
  return emit_one(where_def(), {{as_bool(condition), condition.where}, lhs, rhs});
}
Tensor clip(TensorArg x, const ClipOptions& options) { return emit_one(clip_def(), {x}, options); }

Tensor isnan(TensorArg x) { return emit_one(isnan_def(), {x}); }
Tensor isinf(TensorArg x) { return emit_one(isinf_def(), {x}); }
Tensor isfinite(TensorArg x) { return emit_one(isfinite_def(), {x}); }

}  // namespace sluice::ops
