#include "sluice/ops/sparse_accumulate.h"

#include <algorithm>

#include "sluice/base/simd.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/hyper_rules.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

std::vector<TensorSpec> infer_sparse_accumulate(const OpView& op) {
  const TensorSpec& t = op.input(0);
  const TensorSpec& x = op.input(1);
  require_float(t, "sparse_accumulate_ (C1): t");
  require_float(x, "sparse_accumulate_ (C1): x");
  require_index(op.input(2), "sparse_accumulate_ (C2): indices");
  const int64_t axis = op.options<SparseAccumulateOptions>().axis;
  const int rank = t.shape.rank();
  require(axis >= -rank && axis < rank, "sparse_accumulate_ (C4): axis {} is outside [{}, {})",
          axis, -rank, rank);
  const Shape slices =
      replace_axis(t.shape, static_cast<int>(axis < 0 ? axis + rank : axis), op.input(2).shape);
  require(x.shape == slices, "sparse_accumulate_ (C5): x must have shape {}, got {}",
          to_string(slices), to_string(x));
  require_hypers(op, "(C3)");
  return {t};
}

// t + f·x, with one rounding in float.
float add_scaled(float t, double f, float x) {
  return simd::fma(simd::F1(static_cast<float>(f)), simd::F1(x), simd::F1(t)).v;
}
double add_scaled(double t, double f, double x) { return t + f * x; }

template <typename T>
void reference_sparse_accumulate(const KernelArgs& k) {
  const int64_t axis = k.options<SparseAccumulateOptions>().axis;
  const AxisSplit s(k.out_shape(0),
                    normalize_axis(axis, k.out_shape(0).rank(), "sparse_accumulate_"));
  const double f = hyper_values<T>(k)[0];
  const auto indices = indices_of(k, 2);
  const auto before = k.in<T>(0);
  const auto t = k.out<T>(0);
  if (before.data() != t.data()) std::copy(before.begin(), before.end(), t.begin());
  const T* x = k.in<T>(1).data();
  for (int64_t outer = 0; outer < s.outer; ++outer) {
    for (const int64_t index : indices) {
      const bool inside = index >= 0 && index < s.extent;
      for (int64_t i = 0; inside && i < s.inner; ++i) {
        T& sum = t.data()[(outer * s.extent + index) * s.inner + i];
        sum = add_scaled(sum, f, x[i]);
      }
      x += s.inner;
    }
  }
}

// With g the slices of the gradient at the indices: t has the gradient itself, x has f·g, and f has
// Σ g·x.
Tensors grad_sparse_accumulate(GradContext& g) {
  const auto o = g.options<SparseAccumulateOptions>();
  Tensors result(static_cast<size_t>(g.op().inputs()));
  result[0] = g.grad(0);
  const auto hypers = hypers_of(g.op());
  const int f = hypers[0].operand;
  if (!g.needs(1) && (f < 0 || !g.needs(f))) return result;
  const Tensor slices = gather(g.grad(0), g.input(2), {.axis = o.axis, .zero_out_of_range = true});
  if (g.needs(1)) {
    const Tensor dx = f < 0 ? slices * o.f : slices * cast(g.input(f), slices.dtype());
    result[1] = cast(dx, g.op().input(1).dtype);
  }
  if (f >= 0 && g.needs(f)) {
    const Tensor df = sum(slices * cast(g.input(1), slices.dtype()));
    at(result, f) = cast(df, g.op().input(f).dtype);
  }
  return result;
}

Sample sample(const Shape& t, DType x, const std::vector<int32_t>& indices, const Shape& at,
              const SparseAccumulateOptions& options = {}) {
  const int axis = normalize_axis(options.axis, t.rank(), "sample");
  return {.inputs = {f32_spec(t), {replace_axis(t, axis, at), x, {}}, i32_spec(at)},
          .options = to_attrs(options),
          .values = {std::nullopt, std::nullopt, HostTensor::of<int32_t>(at, i32, indices)}};
}

}  // namespace

const OpDef& sparse_accumulate_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "SparseAccumulate";
    d.name = "sparse_accumulate_";
    d.doc =
        "t = t + f·x at indices along an axis, in ascending order of their place; indices out of "
        "range add nothing. (C1) t and x are floating point; the result has the type of t. (C2) "
        "indices is int32 or uint32. (C3) The operand after them is the hyperparameter that option "
        "operands names, a floating-point scalar. (C4) The axis is one of t's. (C5) x has t's "
        "shape with the axis replaced by the indices'.";
    d.inputs = {{"t", Mode::kUpdate}, {"x"}, {"indices"}, {"hypers"}};
    d.variadic = true;
    d.outputs = {"y"};
    d.aliases = {{0, 0}};
    d.set_options(SparseAccumulateOptions{});
    d.infer = infer_sparse_accumulate;
    d.grad = grad_sparse_accumulate;
    d.reference_float = reference_sparse_accumulate<float>;
    d.reference_double = reference_sparse_accumulate<double>;
    d.flops = [](const OpView& op) { return 2.0 * static_cast<double>(op.input(1).elements()); };
    Sample with_operand = sample({5, 3}, f32, {1, 1}, {2}, {.operands = "f"});
    with_operand.inputs.push_back(f32_spec({}));
    with_operand.values.push_back(HostTensor::scalar(0.75f));
    d.samples = {sample({5, 3}, f32, {4, 0, 4, 9}, {4}, {.f = -0.5}),
                 sample({2, 4, 3}, f32, {3, 3, -1, 1}, {2, 2}, {.axis = 1}),
                 sample({3, 7}, f16, {6, 6, 2}, {3}, {.axis = -1, .f = 0.25}),
                 sample({4}, f32, {2}, {}),
                 sample({4, 2}, f32, {}, {0}),
                 with_operand};
    const auto refused = [](const char* constraint, const std::vector<TensorSpec>& inputs,
                            const SparseAccumulateOptions& o = {}) {
      return MustFail{constraint, inputs, to_attrs(o)};
    };
    const TensorSpec t = f32_spec({5, 3});
    const TensorSpec x = f32_spec({4, 3});
    d.must_fail = {refused("(C1)", {i32_spec({5, 3}), x, i32_spec({4})}),
                   refused("(C1)", {t, i32_spec({4, 3}), i32_spec({4})}),
                   refused("(C2)", {t, x, f32_spec({4})}),
                   refused("(C4)", {t, x, i32_spec({4})}, {.axis = 2}),
                   refused("(C4)", {f32_spec({}), x, i32_spec({4})}),
                   refused("(C5)", {t, x, i32_spec({3})}),
                   refused("(C5)", {t, x, i32_spec({4})}, {.axis = 1}),
                   refused("(C3)", {t, x, i32_spec({4}), f32_spec({})}),
                   refused("(C3)", {t, x, i32_spec({4}), f32_spec({1})}, {.operands = "f"}),
                   refused("(C3)", {t, x, i32_spec({4})}, {.operands = "axis"})};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> sparse_accumulate_ops() { return {&sparse_accumulate_def()}; }

Tensor sparse_accumulate_(TensorArg t, TensorArg x, TensorArg indices, int64_t axis,
                          const HyperArg& f) {
  HyperArgs args({t, x, indices});
  SparseAccumulateOptions options{.axis = axis};
  options.f = args.add("f", f, 1);
  options.operands = args.operands;
  return emit_one(sparse_accumulate_def(), args.inputs, options);
}

}  // namespace sluice::ops
