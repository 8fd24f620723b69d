#include "sluice/ops/arithmetic.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/normalization.h"
#include "sluice/ops/norms.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"

namespace sluice::ops {
namespace {

/// Checks the operands that rms_norm and its gradient share; a weight may be input `weight`.
void require_rms_rows(const OpView& op, int weight) {
  const TensorSpec& x = op.input(0);
  const std::string& name = op.def().name;
  const std::string& what = op.def().inputs[0].name;
  require_float(x, fmt::format("{} (C1): {}", name, what));
  require(x.shape.rank() > 0, "{} (C2): {} must have an axis, got a scalar", name, what);
  require_parameters(op, weight, 1, x.shape.dim(-1), "(C3)");
  require_epsilon(op, op.options<RmsNormOptions>().epsilon, "(C4)");
}

std::vector<TensorSpec> infer_rms(const OpView& op) {
  require_rms_rows(op, 1);
  return {{op.input(0).shape, op.input(0).dtype, {}}};
}

std::vector<TensorSpec> infer_rms_grad(const OpView& op) {
  require_rms_rows(op, 2);
  require_like(op, 1, "rms_norm_grad (C5): x");
  const RowParts parts(op.input(0).shape);
  return {{op.input(0).shape, op.input(0).dtype, {}},
          {{parts.count, parts.cols}, op.input(0).dtype, {}}};
}

/// The factor of a row: 1 / √(mean(x²) + epsilon).
template <typename T>
T inverse_rms(const T* x, int64_t n, double epsilon) {
  const T squares = canonical_sum<T>(n, [&](int64_t i) { return x[i] * x[i]; });
  return inverse_deviation(squares / static_cast<T>(divisor_of_mean(n)), epsilon);
}

template <typename T>
void reference_rms(const KernelArgs& k) {
  const int64_t n = k.in_shape(0).dim(-1);
  const double epsilon = k.options<RmsNormOptions>().epsilon;
  const bool weighted = k.op().inputs() > 1;
  const T* const end = k.in<T>(0).data() + k.in_shape(0).elements();
  T* out = k.out<T>(0).data();
  for (const T* x = k.in<T>(0).data(); x < end; x += n) {
    const T inverse = inverse_rms(x, n, epsilon);
    for (int64_t i = 0; i < n; ++i) {
      T y = x[i] * inverse;
      if (weighted) y = y * k.in<T>(1).data()[i];
      *out++ = y;
    }
  }
}

template <typename T>
void reference_rms_grad(const KernelArgs& k) {
  const RowParts parts(k.in_shape(0));
  const int64_t n = parts.cols;
  const double epsilon = k.options<RmsNormOptions>().epsilon;
  const bool weighted = k.op().inputs() > 2;
  std::fill_n(k.out<T>(1).begin(), parts.count * n, T{0});
  for (int64_t row = 0; row < parts.rows; ++row) {
    const T* grad = k.in<T>(0).data() + row * n;
    const T* x = k.in<T>(1).data() + row * n;
    T* dx = k.out<T>(0).data() + row * n;
    T* dweight = k.out<T>(1).data() + row / parts.size * n;
    const T inverse = inverse_rms(x, n, epsilon);
    const auto h = [&](int64_t i) { return weighted ? grad[i] * k.in<T>(2).data()[i] : grad[i]; };
    const auto normal = [&](int64_t i) { return x[i] * inverse; };
    const T slope =
        canonical_sum<T>(n, [&](int64_t i) { return h(i) * normal(i); }) / static_cast<T>(n);
    for (int64_t i = 0; i < n; ++i) {
      dweight[i] += grad[i] * normal(i);
      dx[i] = (h(i) - normal(i) * slope) * inverse;
    }
  }
}

/// The formula of rms_norm_grad, as a graph of other ops.
Tensors rms_grad_formula(const OpView& op, const Tensors& in) {
  const RowParts parts(op.input(0).shape);
  const ReduceOptions rows{.axes = {-1}, .keepdims = true};
  const Tensor& x = in[1];
  const Tensor inverse = 1.0 / sqrt(mean(x * x, rows) + op.options<RmsNormOptions>().epsilon);
  const Tensor normal = x * inverse;
  const Tensor h = in.size() > 2 ? in[0] * in[2] : in[0];
  std::vector<int32_t> part_of;
  for (int64_t row = 0; row < parts.rows; ++row)
    part_of.push_back(static_cast<int32_t>(row / parts.size));
  const Tensor indices = x.graph().constant(HostTensor::of<int32_t>({parts.rows}, i32, part_of));
  return {(h - normal * mean(h * normal, rows)) * inverse,
          gather_grad(reshape(in[0] * normal, {parts.rows, parts.cols}), indices,
                      {.axis = 0, .size = parts.count})};
}

Tensors gradient_rms(GradContext& g) {
  const bool weighted = g.op().inputs() > 1;
  std::vector<TensorArg> operands{g.grad(0), g.input(0)};
  if (weighted) operands.emplace_back(g.input(1));
  const Tensors all = emit(rms_norm_grad_def(), operands, to_attrs(g.options<RmsNormOptions>()));
  if (!weighted) return {all[0]};
  return {all[0], g.needs(1) ? sum(all[1], {.axes = {0}}) : Tensor{}};
}

Attrs rms_norm_epsilon(double epsilon) { return to_attrs(RmsNormOptions{.epsilon = epsilon}); }

OpDef make_rms_norm() {
  OpDef d;
  d.type = "RmsNorm";
  d.name = "rms_norm";
  d.doc =
      "x / √(mean(x²) + epsilon)·weight with the mean of the squares of each row. (C1) x is "
      "floating point. (C2) x has an axis. (C3) weight, if given, has one element for each column "
      "and x's dtype. (C4) epsilon is finite and not negative.";
  d.inputs = {{"x"}, {"weight"}};
  d.variadic = true;
  d.outputs = {"y"};
  d.set_options(RmsNormOptions{});
  d.may_coincide = {{0, 0}};
  d.infer = infer_rms;
  d.grad = gradient_rms;
  d.reference_float = reference_rms<float>;
  d.reference_double = reference_rms<double>;
  d.flops_per_element = 4;
  const TensorSpec w = f32_spec({10});
  d.samples = {{.inputs = {f32_spec({3, 10}), w}},
               {.inputs = {f32_spec({2, 3, 10}), w}, .options = rms_norm_epsilon(0.25)},
               {.inputs = {f32_spec({37})}},
               {.inputs = {f32_spec({4, 1}), f32_spec({1})}, .options = rms_norm_epsilon(0.25)},
               {.inputs = {f32_spec({0, 10}), w}, .gradient = false}};
  d.must_fail = {{"(C1)", {i32_spec({4})}, {}},
                 {"(C2)", {f32_spec({})}, {}},
                 {"(C3)", {f32_spec({2, 10}), f32_spec({2})}, {}},
                 {"(C3)", {f32_spec({2, 10}), w, w}, {}},
                 {"(C4)", {f32_spec({4})}, rms_norm_epsilon(-1)}};
  return d;
}

OpDef make_rms_norm_grad() {
  OpDef d;
  d.type = "RmsNormGrad";
  d.name = "rms_norm_grad";
  d.audience = Audience::kOperators;
  d.doc =
      "Gradient of rms_norm with respect to x. The sum of the other result over axis 0 is the "
      "gradient of weight: the rows are cut into at most 16 equal parts, and each part has a sum. "
      "(C1) grad is floating point. (C2) grad has an axis. (C3) weight, if given, has one element "
      "for each column and grad's dtype. (C4) epsilon is finite and not negative. (C5) x is like "
      "grad.";
  d.inputs = {{"grad"}, {"x"}, {"weight"}};
  d.variadic = true;
  d.outputs = {"dx", "dweights"};
  d.set_options(RmsNormOptions{});
  d.may_coincide = {{0, 0}, {1, 0}};
  d.infer = infer_rms_grad;
  d.formula = rms_grad_formula;
  d.reference_float = reference_rms_grad<float>;
  d.reference_double = reference_rms_grad<double>;
  d.flops_per_element = 12;
  const TensorSpec x = f32_spec({3, 10});
  d.samples = {{.inputs = {x, x, f32_spec({10})}},
               {.inputs = {f32_spec({2, 3, 5}), f32_spec({2, 3, 5})}},
               {.inputs = {f32_spec({37}), f32_spec({37}), f32_spec({37})}},
               {.inputs = {f32_spec({35, 4}), f32_spec({35, 4}), f32_spec({4})}}};
  d.must_fail = {{"(C1)", {i32_spec({4}), i32_spec({4})}, {}},
                 {"(C2)", {f32_spec({}), f32_spec({})}, {}},
                 {"(C3)", {x, x, f32_spec({3})}, {}},
                 {"(C4)", {x, x}, rms_norm_epsilon(-1)},
                 {"(C5)", {x, f32_spec({10, 3})}, {}}};
  return d;
}

}  // namespace

const OpDef& rms_norm_def() {
  static const OpDef def = make_rms_norm();
  return def;
}
const OpDef& rms_norm_grad_def() {
  static const OpDef def = make_rms_norm_grad();
  return def;
}

std::vector<const OpDef*> rms_norm_ops() { return {&rms_norm_def(), &rms_norm_grad_def()}; }

Tensor rms_norm(TensorArg x, TensorArg weight, const RmsNormOptions& options) {
  return emit_one(rms_norm_def(), {x, weight}, options);
}
Tensor rms_norm(TensorArg x, const RmsNormOptions& options) {
  return emit_one(rms_norm_def(), {x}, options);
}

}  // namespace sluice::ops
