#include "sluice/ops/softmax.h"

#include <limits>

#include "sluice/base/reduce.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/scalar_math.h"

namespace sluice::ops {
namespace {

enum class SoftmaxOp { kSoftmax, kLogSoftmax };

AxisSplit softmax_split(const OpView& op) {
  const Shape& shape = op.input(0).shape;
  return AxisSplit(shape, axis_option(op, op.options<AxisOptions>().axis, shape, "(C2)"));
}

std::vector<TensorSpec> infer_softmax(const OpView& op) {
  require_float(op.input(0), op.def().name + " (C1): x");
  softmax_split(op);
  return {{op.input(0).shape, op.input(0).dtype, {}}};
}

std::vector<TensorSpec> infer_softmax_grad(const OpView& op) {
  const TensorSpec& grad = op.input(0);
  const TensorSpec& y = op.input(1);
  require_float(grad, op.def().name + " (C1): grad");
  softmax_split(op);
  require(grad.shape == y.shape && grad.dtype == y.dtype, "{} (C3): grad must be {} like y, got {}",
          op.def().name, to_string(y), to_string(grad));
  return {{y.shape, y.dtype, {}}};
}

template <SoftmaxOp kind, typename T>
void reference_softmax(const KernelArgs& k) {
  const AxisSplit s = softmax_split(k.op());
  const T* x = k.in<T>(0).data();
  T* y = k.out<T>(0).data();
  for (int64_t l = 0; l < s.lanes(); ++l) {
    const int64_t first = s.lane(l);
    const auto at = [&](int64_t i) { return first + i * s.inner; };
    const T top = canonical_reduce(
        s.extent, -std::numeric_limits<T>::infinity(), [&](int64_t i) { return x[at(i)]; },
        math::max<T>);
    if constexpr (kind == SoftmaxOp::kSoftmax) {
      for (int64_t i = 0; i < s.extent; ++i) y[at(i)] = math::exp(x[at(i)] - top);
      const T total = canonical_sum<T>(s.extent, [&](int64_t i) { return y[at(i)]; });
      for (int64_t i = 0; i < s.extent; ++i) y[at(i)] = y[at(i)] / total;
    } else {
      const T total =
          canonical_sum<T>(s.extent, [&](int64_t i) { return math::exp(x[at(i)] - top); });
      const T shift = math::log(total);
      for (int64_t i = 0; i < s.extent; ++i) y[at(i)] = x[at(i)] - top - shift;
    }
  }
}

template <SoftmaxOp kind, typename T>
void reference_softmax_grad(const KernelArgs& k) {
  const AxisSplit s = softmax_split(k.op());
  const T* grad = k.in<T>(0).data();
  const T* y = k.in<T>(1).data();
  T* dx = k.out<T>(0).data();
  for (int64_t l = 0; l < s.lanes(); ++l) {
    const int64_t first = s.lane(l);
    const auto at = [&](int64_t i) { return first + i * s.inner; };
    if constexpr (kind == SoftmaxOp::kSoftmax) {
      const T dot = canonical_sum<T>(s.extent, [&](int64_t i) { return grad[at(i)] * y[at(i)]; });
      for (int64_t i = 0; i < s.extent; ++i) dx[at(i)] = y[at(i)] * (grad[at(i)] - dot);
    } else {
      const T total = canonical_sum<T>(s.extent, [&](int64_t i) { return grad[at(i)]; });
      for (int64_t i = 0; i < s.extent; ++i) dx[at(i)] = grad[at(i)] - math::exp(y[at(i)]) * total;
    }
  }
}

template <SoftmaxOp kind>
Tensors softmax_grad_formula(const OpView& op, const Tensors& in) {
  const Tensor& grad = in[0];
  const Tensor& y = in[1];
  const auto total = [&](const Tensor& t) {
    return sum(t, {.axes = {op.options<AxisOptions>().axis}, .keepdims = true});
  };
  if constexpr (kind == SoftmaxOp::kSoftmax) return {y * (grad - total(grad * y))};
  return {grad - exp(y) * total(grad)};
}

Attrs along(int64_t axis) { return to_attrs(AxisOptions{axis}); }

OpDef forward(const char* type, const char* name, const char* formula) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc =
      std::string(formula) + " (C1) x is floating point. (C2) The axis exists; a scalar has one.";
  d.inputs = {{"x"}};
  d.outputs = {"y"};
  d.set_options(AxisOptions{});
  d.may_coincide = {{0, 0}};
  d.infer = infer_softmax;
  d.flops_per_element = 4;
  d.samples = {{.inputs = {f32_spec({37})}},
               {.inputs = {f32_spec({})}},
               {.inputs = {f32_spec({3, 10})}},
               {.inputs = {f32_spec({4, 3})}, .options = along(0)},
               {.inputs = {f32_spec({2, 5, 3})},
                .options = along(1),
                .domain = {-30, 30},
                .gradient = false},
               {.inputs = {f32_spec({2, 1})}},
               {.inputs = {f32_spec({0, 3})}, .gradient = false},
               {.inputs = {{{3, 4}, f16, {}}}, .gradient = false}};
  d.must_fail = {{"(C1)", {i32_spec({4})}, {}},
                 {"(C2)", {f32_spec({4})}, along(1)},
                 {"(C2)", {f32_spec({})}, along(1)}};
  return d;
}

OpDef backward(const char* type, const char* name, const char* formula) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = std::string(formula) +
          " (C1) grad is floating point. (C2) The axis exists. (C3) grad and y have the same shape "
          "and dtype.";
  d.audience = Audience::kOperators;
  d.inputs = {{"grad"}, {"y"}};
  d.outputs = {"dx"};
  d.set_options(AxisOptions{});
  d.may_coincide = {{0, 0}, {1, 0}};
  d.infer = infer_softmax_grad;
  d.flops_per_element = 4;
  d.samples = {{.inputs = {f32_spec({37}), f32_spec({37})}},
               {.inputs = {f32_spec({3, 10}), f32_spec({3, 10})}},
               {.inputs = {f32_spec({4, 3}), f32_spec({4, 3})}, .options = along(0)}};
  d.must_fail = {{"(C1)", {i32_spec({4}), i32_spec({4})}, {}},
                 {"(C2)", {f32_spec({4}), f32_spec({4})}, along(-2)},
                 {"(C3)", {f32_spec({4}), f32_spec({5})}, {}}};
  return d;
}

}  // namespace

const OpDef& softmax_def() {
  static const OpDef def = [] {
    OpDef d = forward("Softmax", "softmax", "eˣ⁻ᵐᵃˣ divided by its sum along an axis.");
    d.grad = [](GradContext& g) {
      return Tensors{
          emit_one(softmax_grad_def(), {g.grad(0), g.output(0)}, g.options<AxisOptions>())};
    };
    d.reference_float = reference_softmax<SoftmaxOp::kSoftmax, float>;
    d.reference_double = reference_softmax<SoftmaxOp::kSoftmax, double>;
    return d;
  }();
  return def;
}

const OpDef& log_softmax_def() {
  static const OpDef def = [] {
    OpDef d = forward("LogSoftmax", "log_softmax", "x - max - log Σeˣ⁻ᵐᵃˣ along an axis.");
    d.grad = [](GradContext& g) {
      return Tensors{
          emit_one(log_softmax_grad_def(), {g.grad(0), g.output(0)}, g.options<AxisOptions>())};
    };
    d.reference_float = reference_softmax<SoftmaxOp::kLogSoftmax, float>;
    d.reference_double = reference_softmax<SoftmaxOp::kLogSoftmax, double>;
    return d;
  }();
  return def;
}

const OpDef& softmax_grad_def() {
  static const OpDef def = [] {
    OpDef d =
        backward("SoftmaxGrad", "softmax_grad", "y·(grad - Σ grad·y), the sum along an axis.");
    d.formula = softmax_grad_formula<SoftmaxOp::kSoftmax>;
    d.reference_float = reference_softmax_grad<SoftmaxOp::kSoftmax, float>;
    d.reference_double = reference_softmax_grad<SoftmaxOp::kSoftmax, double>;
    return d;
  }();
  return def;
}

const OpDef& log_softmax_grad_def() {
  static const OpDef def = [] {
    OpDef d =
        backward("LogSoftmaxGrad", "log_softmax_grad", "grad - eʸ·Σ grad, the sum along an axis.");
    d.formula = softmax_grad_formula<SoftmaxOp::kLogSoftmax>;
    d.reference_float = reference_softmax_grad<SoftmaxOp::kLogSoftmax, float>;
    d.reference_double = reference_softmax_grad<SoftmaxOp::kLogSoftmax, double>;
    return d;
  }();
  return def;
}

Tensor softmax(TensorArg t, int64_t axis) {
  return emit_one(softmax_def(), {t}, AxisOptions{axis});
}
Tensor log_softmax(TensorArg t, int64_t axis) {
  return emit_one(log_softmax_def(), {t}, AxisOptions{axis});
}

std::vector<const OpDef*> softmax_ops() {
  return {&softmax_def(), &log_softmax_def(), &softmax_grad_def(), &log_softmax_grad_def()};
}

}  // namespace sluice::ops
