#include "sluice/ops/take_along_axis.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/scalar_math.h"
#include "sluice/ops/unary.h"

namespace sluice::ops {
namespace {

Shape with_size(const Shape& shape, int axis, int64_t size) {
  return shape.empty() ? shape : replace_axis(shape, axis, {size});
}

std::vector<TensorSpec> infer_take(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const TensorSpec& indices = op.input(1);
  require_device_dtype(x, "take_along_axis (C1): x");
  require_index(indices, "take_along_axis (C2): indices");
  const int axis = axis_option(op, op.options<TakeAlongAxisOptions>().axis, x.shape, "(C3)");
  require(
      indices.shape.rank() == x.shape.rank() &&
          with_size(indices.shape, axis, 1) == with_size(x.shape, axis, 1),
      "take_along_axis (C4): indices must have the shape of x, {}, except along axis {}, got {}",
      to_string(x.shape), axis, to_string(indices));
  return {{indices.shape, x.dtype, {}}};
}

std::vector<TensorSpec> infer_add(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const auto o = op.options<AddAlongAxisOptions>();
  require_float(x, "add_along_axis (C1): x");
  require_index(op.input(1), "add_along_axis (C2): indices");
  const int axis = axis_option(op, o.axis, x.shape, "(C3)");
  require(op.input(1).shape == x.shape,
          "add_along_axis (C4): indices must have the shape of x, {}, got {}", to_string(x.shape),
          to_string(op.input(1)));
  require(o.size >= 0 && (!x.shape.empty() || o.size == 1),
          "add_along_axis (C5): size must not be negative, and 1 for a scalar, got {}", o.size);
  return {{with_size(x.shape, axis, o.size), x.dtype, {}}};
}

std::vector<TensorSpec> infer_scatter_reduce(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const TensorSpec& source = op.input(1);
  const TensorSpec& indices = op.input(2);
  const auto o = op.options<ScatterReduceOptions>();
  require_float(x, "scatter_reduce (C1): x");
  require(source.dtype == x.dtype,
          "scatter_reduce (C1): source must have the dtype of x, {}, got {}", name_of(x.dtype),
          to_string(source));
  require_index(indices, "scatter_reduce (C2): indices");
  const int axis = axis_option(op, o.axis, x.shape, "(C3)");
  require(indices.shape.rank() == x.shape.rank() &&
              with_size(indices.shape, axis, 1) == with_size(x.shape, axis, 1),
          "scatter_reduce (C4): indices must have the shape of x, {}, except along axis {}, got {}",
          to_string(x.shape), axis, to_string(indices));
  require(source.shape == indices.shape,
          "scatter_reduce (C5): source must have the shape of indices, {}, got {}",
          to_string(indices.shape), to_string(source));
  require(o.reduction >= ScatterReduction::kSum && o.reduction <= ScatterReduction::kMin,
          "scatter_reduce (C6): reduction must be sum (0), mean (1), max (2) or min (3), got {}",
          static_cast<int>(o.reduction));
  return {{x.shape, x.dtype, {}}};
}

Tensors grad_take(GradContext& g) {
  const Shape& x = g.op().input(0).shape;
  const int axis = normalize_axis(g.options<TakeAlongAxisOptions>().axis, axes_of(x), "");
  return {add_along_axis(g.grad(0), g.input(1), {axis, x.empty() ? 1 : x[axis]}), {}};
}

// Elements outside the axis were dropped, so their gradient is 0.
Tensors grad_add(GradContext& g) {
  const int64_t axis = g.options<AddAlongAxisOptions>().axis;
  return {take_along_axis(g.grad(0), g.input(1), {.axis = axis, .zero_out_of_range = true}), {}};
}

// Computed in float32: counts are not exact in float16 and bfloat16.
Tensors grad_scatter_reduce(GradContext& g) {
  const auto o = g.options<ScatterReduceOptions>();
  const TensorSpec x = g.op().input(0);
  const int axis = normalize_axis(o.axis, axes_of(x.shape), "");
  const Tensor indices = g.input(2);
  const auto taken = [&](const Tensor& t) {
    return take_along_axis(t, indices, {.axis = axis, .zero_out_of_range = true});
  };
  const auto added = [&](const Tensor& t) {
    return add_along_axis(t, indices, {axis, x.shape.empty() ? 1 : x.shape[axis]});
  };
  // The number of the source's terms of each element.
  const auto counts = [&](const Tensor& like) {
    return added(broadcast_to(scalar_like(like, 1), g.op().input(1).shape));
  };
  const auto ties = [](const Tensor& a, const Tensor& b) {
    return cast(logical_or(equal(a, b), logical_and(isnan(a), isnan(b))), f32);
  };
  Tensor share = cast(g.grad(0), f32);  // The gradient of one term.
  Tensor of_self, of_source;            // Weights of the share; empty: 1.
  if (o.reduction == ScatterReduction::kMean) {
    const Tensor terms = counts(share);
    share = share / (o.include_self ? terms + 1.0 : maximum(terms, 1.0));
  } else if (o.reduction != ScatterReduction::kSum) {
    const Tensor y = cast(g.output(0), f32);
    of_source = ties(cast(g.input(1), f32), taken(y));
    // Without include_self, an element that stays has no other terms.
    of_self =
        o.include_self ? ties(cast(g.input(0), f32), y) : cast(equal(counts(share), 0.0), f32);
    share = share / (of_self + added(of_source));
  }
  Tensors grads(3);
  if (g.needs(0)) {
    Tensor dx = share;
    if (of_self.valid()) {
      dx = where(greater(of_self, 0.0), share, 0.0);
    } else if (!o.include_self) {
      dx = where(equal(counts(share), 0.0), share, 0.0);
    }
    grads[0] = cast(dx, x.dtype);
  }
  if (g.needs(1)) {
    const Tensor all = taken(share);
    grads[1] = cast(of_source.valid() ? where(greater(of_source, 0.0), all, 0.0) : all, x.dtype);
  }
  return grads;
}

/// Calls visit(place of an index, place of its element along the axis), in the order of the
/// indices along each lane. The second place is -1 for an index outside the axis.
template <typename Visit>
void visit_indices(const AxisSplit& indexed, int64_t count, const std::vector<int64_t>& indices,
                   Visit visit) {
  for (int64_t outer = 0; outer < indexed.outer; ++outer) {
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t n = 0; n < indexed.inner; ++n) {
        const int64_t place = (outer * count + i) * indexed.inner + n;
        const int64_t index = at(indices, place);
        const bool inside = index >= 0 && index < indexed.extent;
        visit(place, inside ? (outer * indexed.extent + index) * indexed.inner + n : -1);
      }
    }
  }
}

template <typename T>
void reference_take(const KernelArgs& k) {
  const auto o = k.options<TakeAlongAxisOptions>();
  const Shape& shape = k.in_shape(0);
  const int axis = normalize_axis(o.axis, axes_of(shape), "");
  const int64_t count = AxisSplit(k.in_shape(1), axis).extent;
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    E outside{};
    if constexpr (std::is_floating_point_v<E>) {
      if (!o.zero_out_of_range) outside = std::numeric_limits<E>::quiet_NaN();
    }
    const E* const x = k.in<E>(0).data();
    E* const y = k.out<E>(0).data();
    visit_indices(AxisSplit(shape, axis), count, indices_of(k, 1),
                  [&](int64_t to, int64_t from) { y[to] = from >= 0 ? x[from] : outside; });
  });
}

template <typename T>
void reference_add(const KernelArgs& k) {
  const auto o = k.options<AddAlongAxisOptions>();
  const int axis = normalize_axis(o.axis, axes_of(k.in_shape(0)), "");
  const int64_t count = AxisSplit(k.in_shape(0), axis).extent;
  const T* const x = k.in<T>(0).data();
  const auto y = k.out<T>(0);
  std::fill(y.begin(), y.end(), T{0});
  visit_indices(AxisSplit(k.out_shape(0), axis), count, indices_of(k, 1),
                [&](int64_t from, int64_t to) {
                  if (to >= 0) y.data()[to] += x[from];
                });
}

template <typename T>
void reference_scatter_reduce(const KernelArgs& k) {
  const auto o = k.options<ScatterReduceOptions>();
  const int axis = normalize_axis(o.axis, axes_of(k.in_shape(0)), "");
  const int64_t count = AxisSplit(k.in_shape(2), axis).extent;
  const auto x = k.in<T>(0);
  const T* const source = k.in<T>(1).data();
  const auto y = k.out<T>(0);
  if (x.data() != y.data()) std::copy(x.begin(), x.end(), y.begin());
  std::vector<int64_t> terms(y.size(), o.include_self ? 1 : 0);
  visit_indices(AxisSplit(k.out_shape(0), axis), count, indices_of(k, 2),
                [&](int64_t from, int64_t to) {
                  if (to < 0) return;
                  T& result = y.data()[to];
                  const T term = source[from];
                  if (at(terms, to)++ == 0) {
                    result = term;
                  } else if (o.reduction == ScatterReduction::kMax) {
                    result = math::max(result, term);
                  } else if (o.reduction == ScatterReduction::kMin) {
                    result = math::min(result, term);
                  } else {
                    result += term;
                  }
                });
  if (o.reduction != ScatterReduction::kMean) return;
  for (size_t i = 0; i < y.size(); ++i) {
    if (terms[i] > 1) y[i] /= static_cast<T>(terms[i]);
  }
}

HostTensor i32_values(Shape shape, const std::vector<int32_t>& values) {
  return HostTensor::of<int32_t>(std::move(shape), i32, values);
}

}  // namespace

const OpDef& take_along_axis_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "TakeAlongAxis";
    d.name = "take_along_axis";
    d.doc =
        "The element of x at each index along an axis, as numpy.take_along_axis. An index outside "
        "the axis yields NaN (integers and bool: zero), or zero if an option says so. (C1) x has a "
        "device dtype. (C2) indices is int32 or uint32. (C3) The axis exists; a scalar has one. "
        "(C4) indices has the shape of x except along the axis.";
    d.inputs = {{"x"}, {"indices"}};
    d.outputs = {"y"};
    d.set_options(TakeAlongAxisOptions{});
    d.infer = infer_take;
    d.grad = grad_take;
    d.reference_float = reference_take<float>;
    d.reference_double = reference_take<double>;
    d.flops_per_element = 0;
    const auto with = [](int64_t axis, bool zero) {
      return to_attrs(TakeAlongAxisOptions{axis, zero});
    };
    d.samples = {
        {.inputs = {f32_spec({5}), i32_spec({4})},
         .values = {std::nullopt, i32_values({4}, {4, 0, 4, 2})}},
        {.inputs = {f32_spec({3, 2}), {{2, 2}, u32, {}}},
         .options = with(0, false),
         .values = {std::nullopt, i32_values({2, 2}, {2, 2, 0, 1}).cast(u32)}},
        {.inputs = {f32_spec({2, 3, 2}), i32_spec({2, 2, 2})},
         .options = with(1, true),
         .values = {std::nullopt, i32_values({2, 2, 2}, {-1, 0, 3, 2, 1, 1, 1, 0})}},
        {.inputs = {f32_spec({4}), i32_spec({2})},
         .values = {std::nullopt, i32_values({2}, {7, 1})},
         .gradient = false},
        {.inputs = {{{2, 3}, f16, {}}, i32_spec({2, 1})},
         .values = {std::nullopt, i32_values({2, 1}, {2, 3})},
         .gradient = false},
        {.inputs = {f32_spec({}), i32_spec({})}, .values = {std::nullopt, i32_values({}, {0})}},
        {.inputs = {i32_spec({4}), i32_spec({0})}, .gradient = false}};
    d.must_fail = {{"(C1)", {{{4}, f64, {}}, i32_spec({2})}, {}},
                   {"(C2)", {f32_spec({4}), f32_spec({2})}, {}},
                   {"(C3)", {f32_spec({4}), i32_spec({2})}, with(1, false)},
                   {"(C4)", {f32_spec({4, 2}), i32_spec({3, 2})}, with(1, false)},
                   {"(C4)", {f32_spec({4, 2}), i32_spec({2})}, {}}};
    return d;
  }();
  return def;
}

const OpDef& add_along_axis_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "AddAlongAxis";
    d.name = "add_along_axis";
    d.doc =
        "Zeros to which the elements of x are added at their indices along an axis, in the order "
        "of the indices; indices out of range add nothing. (C1) x is floating point. (C2) indices "
        "is int32 or uint32. (C3) The axis exists; a scalar has one. (C4) indices has the shape of "
        "x. (C5) size is not negative.";
    d.inputs = {{"x"}, {"indices"}};
    d.outputs = {"y"};
    d.set_options(AddAlongAxisOptions{});
    d.infer = infer_add;
    d.grad = grad_add;
    d.reference_float = reference_add<float>;
    d.reference_double = reference_add<double>;
    d.flops = [](const OpView& op) { return static_cast<double>(op.input(0).elements()); };
    const auto with = [](int64_t axis, int64_t size) {
      return to_attrs(AddAlongAxisOptions{axis, size});
    };
    d.samples = {{.inputs = {f32_spec({4}), i32_spec({4})},
                  .options = with(0, 5),
                  .values = {std::nullopt, i32_values({4}, {4, 0, 4, 9})}},
                 {.inputs = {f32_spec({2, 2, 2}), i32_spec({2, 2, 2})},
                  .options = with(1, 3),
                  .values = {std::nullopt, i32_values({2, 2, 2}, {-1, 0, 2, 2, 1, 1, 1, 0})}}};
    d.must_fail = {{"(C1)", {i32_spec({4}), i32_spec({4})}, with(0, 5)},
                   {"(C2)", {f32_spec({4}), f32_spec({4})}, with(0, 5)},
                   {"(C3)", {f32_spec({4}), i32_spec({4})}, with(1, 5)},
                   {"(C4)", {f32_spec({4}), i32_spec({3})}, with(0, 5)},
                   {"(C5)", {f32_spec({4}), i32_spec({4})}, with(0, -1)}};
    return d;
  }();
  return def;
}

const OpDef& scatter_reduce_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "ScatterReduce";
    d.name = "scatter_reduce";
    d.doc =
        "The elements of x, each combined with the elements of source whose indices along an axis "
        "point to it, in the order of the indices: their sum, mean, maximum or minimum. Without "
        "include_self, an element of x stays only where no index points to. Indices out of range "
        "add no term. (C1) x and source are floating point and have one dtype. (C2) indices is "
        "int32 or uint32. (C3) The axis exists; a scalar has one. (C4) indices has the shape of x "
        "except along the axis. (C5) source has the shape of indices. (C6) reduction is sum, "
        "mean, max or min.";
    d.inputs = {{"x"}, {"source"}, {"indices"}};
    d.may_coincide = {{0, 0}};
    d.outputs = {"y"};
    d.set_options(ScatterReduceOptions{});
    d.infer = infer_scatter_reduce;
    d.grad = grad_scatter_reduce;
    d.reference_float = reference_scatter_reduce<float>;
    d.reference_double = reference_scatter_reduce<double>;
    d.flops = [](const OpView& op) { return static_cast<double>(op.input(1).elements()); };
    const auto with = [](int64_t axis, ScatterReduction reduction, bool include_self) {
      return to_attrs(ScatterReduceOptions{axis, reduction, include_self});
    };
    using enum ScatterReduction;
    for (const ScatterReduction reduction : {kSum, kMean, kMax, kMin}) {
      for (const bool include_self : {true, false}) {
        d.samples.push_back(
            {.inputs = {f32_spec({5}), f32_spec({6}), i32_spec({6})},
             .options = with(0, reduction, include_self),
             .values = {std::nullopt, std::nullopt, i32_values({6}, {4, 0, 4, 9, 4, 1})}});
        d.samples.push_back(
            {.inputs = {f32_spec({2, 3, 2}), f32_spec({2, 2, 2}), {{2, 2, 2}, u32, {}}},
             .options = with(1, reduction, include_self),
             .values = {std::nullopt, std::nullopt,
                        i32_values({2, 2, 2}, {-1, 0, 2, 2, 1, 1, 1, 0}).cast(u32)}});
      }
      d.samples.push_back(
          {.inputs = {{{3, 2}, f16, {}}, {{4, 2}, f16, {}}, i32_spec({4, 2})},
           .options = with(0, reduction, true),
           .values = {std::nullopt, std::nullopt, i32_values({4, 2}, {0, 2, 0, 2, 1, 1, 0, 2})}});
    }
    d.samples.push_back({.inputs = {f32_spec({}), f32_spec({}), i32_spec({})},
                         .options = with(0, kMean, true),
                         .values = {std::nullopt, std::nullopt, i32_values({}, {0})}});
    d.samples.push_back({.inputs = {f32_spec({2, 3}), f32_spec({2, 0}), i32_spec({2, 0})},
                         .options = with(1, kMax, false)});
    const Attrs sum = with(0, kSum, true);
    const TensorSpec x = f32_spec({4, 2});
    d.must_fail = {{"(C1)", {i32_spec({4, 2}), i32_spec({4, 2}), i32_spec({4, 2})}, sum},
                   {"(C1)", {x, {{4, 2}, f16, {}}, i32_spec({4, 2})}, sum},
                   {"(C2)", {x, x, x}, sum},
                   {"(C3)", {x, x, i32_spec({4, 2})}, with(2, kSum, true)},
                   {"(C4)", {x, f32_spec({4, 3}), i32_spec({4, 3})}, sum},
                   {"(C4)", {x, f32_spec({4}), i32_spec({4})}, sum},
                   {"(C5)", {x, f32_spec({4, 2}), i32_spec({3, 2})}, sum},
                   {"(C6)", {x, x, i32_spec({4, 2})}, with(0, ScatterReduction{4}, true)}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> take_along_axis_ops() {
  return {&take_along_axis_def(), &add_along_axis_def(), &scatter_reduce_def()};
}

Tensor take_along_axis(TensorArg t, TensorArg indices, const TakeAlongAxisOptions& options) {
  return emit_one(take_along_axis_def(), {t, indices}, options);
}
Tensor add_along_axis(TensorArg t, TensorArg indices, const AddAlongAxisOptions& options) {
  return emit_one(add_along_axis_def(), {t, indices}, options);
}

Tensor scatter_reduce(TensorArg t, TensorArg source, TensorArg indices,
                      const ScatterReduceOptions& options) {
  return emit_one(scatter_reduce_def(), {t, source, indices}, options);
}
Tensor index_reduce(TensorArg t, TensorArg source, TensorArg indices,
                    const ScatterReduceOptions& options) {
  require(t->rank() > 0 && indices->rank() == 1,
          "index_reduce: t must have an axis and indices one axis, got shapes {} and {}",
          to_string(t->shape()), to_string(indices->shape()));
  const int axis = normalize_axis(options.axis, t->rank(), "index_reduce");
  std::vector<int64_t> dims(static_cast<size_t>(t->rank()), 1);
  dims[static_cast<size_t>(axis)] = indices->shape()[0];
  const Shape slices = with_size(t->shape(), axis, indices->shape()[0]);
  const Tensor each = broadcast_to({reshape(indices, Shape(dims)), indices.where}, slices);
  return scatter_reduce(t, source, {each, indices.where}, options);
}

Tensor bincount(TensorArg indices, int64_t size) {
  const TensorArg flat{flatten(indices), indices.where};
  const Tensor ones = broadcast_to(indices->graph().scalar(1, f32, "one"), flat->shape());
  return add_along_axis({ones, indices.where}, flat, {.axis = 0, .size = size});
}

Tensor histogram(TensorArg t, int64_t bins, double min, double max) {
  require_float(t->spec(), "histogram: t");
  require(bins >= 1 && bins <= 1 << 24 && min < max && std::isfinite(static_cast<float>(max - min)),
          "histogram: bins must be in [1, 2^24] and min below max, got {}, {} and {}", bins, min,
          max);
  const TensorArg x{cast(t, f32), t.where};
  const Tensor inside = logical_and(greater_equal(x, min), less_equal(x, max));
  const Tensor bin =
      floor((where({inside, t.where}, x, min) - min) * (static_cast<double>(bins) / (max - min)));
  const Tensor last = minimum(bin, static_cast<double>(bins - 1));  // For max itself.
  return bincount({cast(where(inside, last, -1.0), i32), t.where}, bins);
}

}  // namespace sluice::ops
