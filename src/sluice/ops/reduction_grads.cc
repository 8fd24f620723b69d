#include "sluice/ops/reduction_grads.h"

#include <cmath>

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/cumsum.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/reduction_functors.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/scalar_math.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/transpose.h"

namespace sluice::ops {
namespace {

enum class ReduceGradOp { kMean, kMax, kMin, kProd, kL1, kL2, kLogSum, kLogSumExp, kSumSquare };

constexpr bool reads_x(ReduceGradOp kind) {
  return kind != ReduceGradOp::kMean && kind != ReduceGradOp::kLogSum;
}
constexpr bool reads_y(ReduceGradOp kind) {
  return kind == ReduceGradOp::kMax || kind == ReduceGradOp::kMin || kind == ReduceGradOp::kL2 ||
         kind == ReduceGradOp::kLogSum || kind == ReduceGradOp::kLogSumExp;
}

Reduction reduction_of(const OpView& op) {
  const auto o = op.options<ReduceGradOptions>();
  return Reduction(o.shape, {.axes = o.axes, .keepdims = o.keepdims}, op.def().name);
}

template <ReduceGradOp kind>
std::vector<TensorSpec> infer_reduction_grad(const OpView& op) {
  const std::string& name = op.def().name;
  const TensorSpec& grad = op.input(0);
  require_float(grad, name + " (C1): grad");
  const Reduction r = reduction_of(op);
  const Shape shape = op.options<ReduceGradOptions>().shape;
  require(grad.shape == r.out,
          "{} (C3): grad must have shape {} for an operand of shape {}, got {}", name,
          to_string(r.out), to_string(shape), to_string(grad));
  for (int i = 1; i < op.inputs(); ++i) {
    const TensorSpec want{reads_x(kind) && i == 1 ? shape : r.out, grad.dtype, {}};
    require(op.input(i).shape == want.shape && op.input(i).dtype == want.dtype,
            "{} (C3): {} must be {}, got {}", name, at(op.def().inputs, i).name, to_string(want),
            to_string(op.input(i)));
  }
  return {{shape, grad.dtype, {}}};
}

template <typename T>
bool ties(T x, T y) {
  return x == y || (x != x && y != y);
}

/// The functor that defines the bits of a gradient in float, where it depends on x.
template <ReduceGradOp kind>
struct LaneFunctor;
template <>
struct LaneFunctor<ReduceGradOp::kL1> : functor::L1Grad {};
template <>
struct LaneFunctor<ReduceGradOp::kL2> : functor::L2Grad {};
template <>
struct LaneFunctor<ReduceGradOp::kLogSumExp> : functor::LogSumExpGrad {};
template <>
struct LaneFunctor<ReduceGradOp::kSumSquare> : functor::SumSquareGrad {};

/// Computes the gradient of the n elements of one lane; at(i) is the offset of element i.
template <ReduceGradOp kind, typename T, typename At>
void lane_gradient(int64_t n, T grad, const T* x, T y, T* dx, At at) {
  if constexpr (kind == ReduceGradOp::kMax || kind == ReduceGradOp::kMin) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += ties(x[at(i)], y);
    const T share = grad / static_cast<T>(count);
    for (int64_t i = 0; i < n; ++i) dx[at(i)] = ties(x[at(i)], y) ? share : T{0};
  } else if constexpr (kind == ReduceGradOp::kProd) {
    // The product of the elements before i, stored in dx, times the product of those after i. Zeros
    // are allowed because there is no division.
    T before = 1;
    for (int64_t i = 0; i < n; ++i) {
      dx[at(i)] = before;
      before *= x[at(i)];
    }
    T after = grad;
    for (int64_t i = n - 1; i >= 0; --i) {
      dx[at(i)] *= after;
      after *= x[at(i)];
    }
  } else {
    const auto one = [&](int64_t i) -> T {
      if constexpr (kind == ReduceGradOp::kMean) return grad / static_cast<T>(n);
      if constexpr (std::is_same_v<T, float> && requires { LaneFunctor<kind>{}; })
        return LaneFunctor<kind>{}(simd::F1(grad), simd::F1(x[at(i)]), simd::F1(y)).v;
      if constexpr (kind == ReduceGradOp::kL1)
        return x[at(i)] > 0 ? grad : x[at(i)] < 0 ? -grad : grad * x[at(i)];
      if constexpr (kind == ReduceGradOp::kL2) return y == 0 ? T{0} : grad * (x[at(i)] / y);
      if constexpr (kind == ReduceGradOp::kLogSum) return grad * math::exp(-y);
      if constexpr (kind == ReduceGradOp::kLogSumExp) return grad * math::exp(x[at(i)] - y);
      if constexpr (kind == ReduceGradOp::kSumSquare) return (grad + grad) * x[at(i)];
    };
    for (int64_t i = 0; i < n; ++i) dx[at(i)] = one(i);
  }
}

template <ReduceGradOp kind, typename T>
void reference_reduction_grad(const KernelArgs& k) {
  const Reduction r = reduction_of(k.op());
  const StridedIndex lane(r.kept_dims, r.kept_strides);
  const StridedIndex element(r.reduced_dims, r.reduced_strides);
  const auto grad = k.in<T>(0);
  const T* x = reads_x(kind) ? k.in<T>(1).data() : nullptr;
  const T* y = reads_y(kind) ? k.in<T>(k.op().inputs() - 1).data() : nullptr;
  T* dx = k.out<T>(0).data();
  for (size_t o = 0; o < grad.size(); ++o) {
    const int64_t first = lane(static_cast<int64_t>(o));
    lane_gradient<kind, T>(r.extent, grad[o], x, y == nullptr ? T{0} : y[o], dx,
                           [&](int64_t i) { return first + element(i); });
  }
}

// The products of the elements of each row before each element.
Tensor products_before(const Tensor& rows) {
  const int64_t n = rows.shape()[1];
  const Tensor ones = broadcast_to(scalar_like(rows, 1), {rows.shape()[0], 1});
  return concat({ones, slice(cumprod(rows, {.axis = 1}), {0}, {n - 1}, {1}, {1})}, 1);
}

// grad times the product of the elements before each element and of those after it.
Tensor product_grad_formula(const Tensor& grad, const Tensor& x, const ReduceOptions& options) {
  const Shape& shape = x.shape();
  const Reduction r(shape, options, "reduce_prod_grad");
  if (shape.elements() == 0) return broadcast_to(reshape(grad, r.kept), shape);
  // The reduced axes last, as one.
  std::vector<int64_t> order, moved, back(static_cast<size_t>(shape.rank()));
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()), options.axes.empty());
  for (const int64_t axis : options.axes)
    if (shape.rank() > 0)
      reduced[static_cast<size_t>(axis < 0 ? axis + shape.rank() : axis)] = true;
  for (const bool last : {false, true}) {
    for (int a = 0; a < shape.rank(); ++a)
      if (reduced[static_cast<size_t>(a)] == last) order.push_back(a);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    moved.push_back(shape[static_cast<int>(order[i])]);
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  const Tensor rows =
      reshape(transpose(cast(x, f32), order), {shape.elements() / r.extent, r.extent});
  const Tensor others = products_before(rows) * flip(products_before(flip(rows, {1})), {1});
  const Tensor dx = others * reshape(cast(grad, f32), {rows.shape()[0], 1});
  return cast(transpose(reshape(dx, Shape(moved)), back), x.dtype());
}

template <ReduceGradOp kind>
Tensors reduction_grad_formula(const OpView& op, const Tensors& in) {
  const Reduction r = reduction_of(op);
  const Shape shape = op.options<ReduceGradOptions>().shape;
  const auto spread = [&](const Tensor& t) {
    return broadcast_to(t.shape() == r.kept ? t : reshape(t, r.kept), shape);
  };
  if constexpr (kind == ReduceGradOp::kProd)
    return {product_grad_formula(in[0], in[1], {.axes = op.options<ReduceGradOptions>().axes})};
  const Tensor grad = spread(in[0]);
  if constexpr (kind == ReduceGradOp::kMean) return {grad / static_cast<double>(r.extent)};
  if constexpr (kind == ReduceGradOp::kLogSum) return {grad * exp(-spread(in[1]))};
  if constexpr (kind == ReduceGradOp::kLogSumExp) return {grad * exp(in[1] - spread(in[2]))};
  if constexpr (kind == ReduceGradOp::kSumSquare) return {grad * in[1] * 2.0};
  if constexpr (kind == ReduceGradOp::kL2) {
    const Tensor y = spread(in[2]);
    const Tensor flat = equal(y, 0.0);
    return {where(flat, 0.0, grad * in[1] / where(flat, 1.0, y))};
  }
  // The op is linear in grad, and its factors do not depend differentiably on x and y.
  std::vector<TensorArg> operands{broadcast_to(scalar_like(in[0], 1), in[0].shape())};
  for (size_t i = 1; i < in.size(); ++i) operands.emplace_back(detach(in[i]));
  return {grad * emit(op.def(), operands, op.attrs())[0]};
}

template <ReduceGradOp kind>
OpDef gradient(const char* type, const char* name, const char* formula) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = std::string(formula) +
          " (C1) grad is floating point. (C2) Axes are in range and distinct. (C3) grad and y have "
          "the shape of the "
          "reduction's result, x that of its operand, all one dtype.";
  d.inputs = {{"grad"}};
  if (reads_x(kind)) d.inputs.push_back({"x"});
  if (reads_y(kind)) d.inputs.push_back({"y"});
  d.outputs = {"dx"};
  d.set_options(ReduceGradOptions{});
  d.infer = infer_reduction_grad<kind>;
  d.formula = reduction_grad_formula<kind>;
  d.reference_float = reference_reduction_grad<kind, float>;
  d.reference_double = reference_reduction_grad<kind, double>;
  d.flops_per_element = 2;
  const auto sample = [](const Shape& shape, std::vector<int64_t> axes, bool keepdims) {
    const Reduction r(shape, {.axes = axes, .keepdims = keepdims}, "sample");
    Sample s;
    s.inputs = {f32_spec(r.out)};
    if (reads_x(kind)) s.inputs.push_back(f32_spec(shape));
    if (reads_y(kind)) s.inputs.push_back(f32_spec(r.out));
    s.options =
        to_attrs(ReduceGradOptions{.axes = std::move(axes), .keepdims = keepdims, .shape = shape});
    s.domain = {0.5, 1.5};
    return s;
  };
  d.samples = {sample({37}, {}, false), sample({3, 5}, {0}, false),
               sample({4, 3, 2}, {1, -1}, true), sample({}, {}, false)};
  if (kind == ReduceGradOp::kMax || kind == ReduceGradOp::kMin) {
    // y must equal an element of x, or no element gets the gradient.
    const bool largest = kind == ReduceGradOp::kMax;
    const auto x = HostTensor::of<float>({2, 3}, f32, {1, 3, 3, 5, 5, 1});
    const auto y = HostTensor::of<float>(
        {2}, f32, largest ? std::vector<float>{3, 5} : std::vector<float>{1, 1});
    Sample s = sample({2, 3}, {1}, false);
    s.values = {std::nullopt, x, y};
    s.gradient = false;  // Central differences would break the ties.
    d.samples = {s};
  }
  if (kind == ReduceGradOp::kProd) {
    Sample zeros = sample({2, 4}, {1}, false);
    zeros.values = {std::nullopt,
                    HostTensor::of<float>({2, 4}, f32, {1.5, 0, 0, 3, 2, 0.5, -1, 0})};
    d.samples.push_back(zeros);
  }
  const auto options = [](std::vector<int64_t> axes) {
    return to_attrs(ReduceGradOptions{.axes = std::move(axes), .shape = {2, 3}});
  };
  const auto specs = [](TensorSpec grad) {
    return std::vector<TensorSpec>(1 + reads_x(kind) + reads_y(kind), grad);
  };
  d.must_fail = {{"(C1)", specs(i32_spec({3})), options({0})},
                 {"(C2)", specs(f32_spec({3})), options({5})},
                 {"(C3)", specs(f32_spec({4})), options({0})}};
  return d;
}

ReduceGradOptions with_shape(const ReduceOptions& o, const Shape& shape) {
  return {.axes = o.axes, .keepdims = o.keepdims, .shape = shape};
}

}  // namespace

const OpDef& reduce_max_grad_def() {
  static const OpDef def = gradient<ReduceGradOp::kMax>(
      "ReduceMaxGrad", "reduce_max_grad",
      "grad where x is the maximum y, shared equally by ties; zero elsewhere.");
  return def;
}
const OpDef& reduce_min_grad_def() {
  static const OpDef def = gradient<ReduceGradOp::kMin>(
      "ReduceMinGrad", "reduce_min_grad",
      "grad where x is the minimum y, shared equally by ties; zero elsewhere.");
  return def;
}
const OpDef& reduce_prod_grad_def() {
  static const OpDef def = gradient<ReduceGradOp::kProd>(
      "ReduceProdGrad", "reduce_prod_grad", "grad times the product of the other elements.");
  return def;
}
const OpDef& reduce_l1_grad_def() {
  static const OpDef def =
      gradient<ReduceGradOp::kL1>("ReduceL1Grad", "reduce_l1_grad", "grad·sign(x).");
  return def;
}
const OpDef& reduce_l2_grad_def() {
  static const OpDef def = gradient<ReduceGradOp::kL2>("ReduceL2Grad", "reduce_l2_grad",
                                                       "grad·x/y, zero where y is zero.");
  return def;
}
const OpDef& reduce_log_sum_grad_def() {
  static const OpDef def =
      gradient<ReduceGradOp::kLogSum>("ReduceLogSumGrad", "reduce_log_sum_grad", "grad·e⁻ʸ.");
  return def;
}
const OpDef& reduce_log_sum_exp_grad_def() {
  static const OpDef def = gradient<ReduceGradOp::kLogSumExp>(
      "ReduceLogSumExpGrad", "reduce_log_sum_exp_grad", "grad·eˣ⁻ʸ.");
  return def;
}
const OpDef& reduce_sum_square_grad_def() {
  static const OpDef def = gradient<ReduceGradOp::kSumSquare>(
      "ReduceSumSquareGrad", "reduce_sum_square_grad", "2·grad·x.");
  return def;
}

const OpDef& reduce_mean_grad_def() {
  static const OpDef def =
      gradient<ReduceGradOp::kMean>("ReduceMeanGrad", "reduce_mean_grad", "grad / n.");
  return def;
}

Tensor reduce_mean_grad(TensorArg grad, const Shape& shape, const ReduceOptions& options) {
  return emit_one(reduce_mean_grad_def(), {grad}, with_shape(options, shape));
}
Tensor reduce_max_grad(TensorArg grad, TensorArg x, TensorArg y, const ReduceOptions& options) {
  return emit_one(reduce_max_grad_def(), {grad, x, y}, with_shape(options, x->shape()));
}
Tensor reduce_min_grad(TensorArg grad, TensorArg x, TensorArg y, const ReduceOptions& options) {
  return emit_one(reduce_min_grad_def(), {grad, x, y}, with_shape(options, x->shape()));
}
Tensor reduce_prod_grad(TensorArg grad, TensorArg x, const ReduceOptions& options) {
  return emit_one(reduce_prod_grad_def(), {grad, x}, with_shape(options, x->shape()));
}
Tensor reduce_l1_grad(TensorArg grad, TensorArg x, const ReduceOptions& options) {
  return emit_one(reduce_l1_grad_def(), {grad, x}, with_shape(options, x->shape()));
}
Tensor reduce_l2_grad(TensorArg grad, TensorArg x, TensorArg y, const ReduceOptions& options) {
  return emit_one(reduce_l2_grad_def(), {grad, x, y}, with_shape(options, x->shape()));
}
Tensor reduce_log_sum_grad(TensorArg grad, TensorArg y, const Shape& shape,
                           const ReduceOptions& options) {
  return emit_one(reduce_log_sum_grad_def(), {grad, y}, with_shape(options, shape));
}
Tensor reduce_log_sum_exp_grad(TensorArg grad, TensorArg x, TensorArg y,
                               const ReduceOptions& options) {
  return emit_one(reduce_log_sum_exp_grad_def(), {grad, x, y}, with_shape(options, x->shape()));
}
Tensor reduce_sum_square_grad(TensorArg grad, TensorArg x, const ReduceOptions& options) {
  return emit_one(reduce_sum_square_grad_def(), {grad, x}, with_shape(options, x->shape()));
}

std::vector<const OpDef*> reduction_grads_ops() {
  return {
      &reduce_mean_grad_def(),    &reduce_max_grad_def(),         &reduce_min_grad_def(),
      &reduce_prod_grad_def(),    &reduce_l1_grad_def(),          &reduce_l2_grad_def(),
      &reduce_log_sum_grad_def(), &reduce_log_sum_exp_grad_def(), &reduce_sum_square_grad_def()};
}

}  // namespace sluice::ops
