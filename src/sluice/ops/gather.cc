#include "sluice/ops/gather.h"

#include <algorithm>
#include <limits>

#include "sluice/base/reduce.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/transpose.h"

namespace sluice::ops {
namespace {

int axis_of(const OpView& op, int64_t axis, int rank) {
  require(axis >= -rank && axis < rank, "{} (C3): axis {} is outside [{}, {})", op.def().name, axis,
          -rank, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<TensorSpec> infer_gather(const OpView& op) {
  const TensorSpec& x = op.input(0);
  require_device_dtype(x, "gather (C1): x");
  require_index(op.input(1), "gather (C2): indices");
  const int axis = axis_of(op, op.options<GatherOptions>().axis, x.shape.rank());
  return {{replace_axis(x.shape, axis, op.input(1).shape), x.dtype, {}}};
}

std::vector<TensorSpec> infer_gather_grad(const OpView& op) {
  const TensorSpec& grad = op.input(0);
  const Shape& indices = op.input(1).shape;
  const auto o = op.options<GatherGradOptions>();
  require_float(grad, "gather_grad (C1): grad");
  require_index(op.input(1), "gather_grad (C2): indices");
  const int rank = grad.shape.rank() - indices.rank() + 1;
  require(
      o.axis >= 0 && o.axis < rank && o.size >= 0,
      "gather_grad (C3): axis must be in [0, {}) and size not negative, got axis {} and size {}",
      rank, o.axis, o.size);
  const auto first = grad.shape.begin() + o.axis;
  require(std::equal(indices.begin(), indices.end(), first),
          "gather_grad (C4): grad must have the shape of indices, {}, from axis {} on, got {}",
          to_string(indices), o.axis, to_string(grad.shape));
  std::vector<int64_t> dims(grad.shape.begin(), first);
  dims.push_back(o.size);
  dims.insert(dims.end(), first + indices.rank(), grad.shape.end());
  return {{Shape(std::move(dims)), grad.dtype, {}}};
}

Tensors grad_gather(GradContext& g) {
  const Shape& x = g.op().input(0).shape;
  const int axis = normalize_axis(g.options<GatherOptions>().axis, x.rank(), "gather");
  return {gather_grad(g.grad(0), g.input(1), {.axis = axis, .size = x[axis]}), {}};
}

// Slices of grad outside the axis were dropped, so their gradient is 0.
Tensors grad_gather_grad(GradContext& g) {
  const int64_t axis = g.options<GatherGradOptions>().axis;
  return {gather(g.grad(0), g.input(1), {.axis = axis, .zero_out_of_range = true}), {}};
}

template <typename T>
void reference_gather(const KernelArgs& k) {
  const auto o = k.options<GatherOptions>();
  const AxisSplit s(k.in_shape(0), normalize_axis(o.axis, k.in_shape(0).rank(), "gather"));
  const auto indices = indices_of(k, 1);
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    E outside{};
    if constexpr (std::is_floating_point_v<E>) {
      if (!o.zero_out_of_range) outside = std::numeric_limits<E>::quiet_NaN();
    }
    const E* x = k.in<E>(0).data();
    E* y = k.out<E>(0).data();
    for (int64_t outer = 0; outer < s.outer; ++outer) {
      for (const int64_t index : indices) {
        if (index >= 0 && index < s.extent) {
          std::copy_n(x + (outer * s.extent + index) * s.inner, s.inner, y);
        } else {
          std::fill_n(y, s.inner, outside);
        }
        y += s.inner;
      }
    }
  });
}

template <typename T>
void reference_gather_grad(const KernelArgs& k) {
  const AxisSplit s(k.out_shape(0), static_cast<int>(k.options<GatherGradOptions>().axis));
  const auto indices = indices_of(k, 1);
  const T* grad = k.in<T>(0).data();
  const auto dx = k.out<T>(0);
  std::fill(dx.begin(), dx.end(), T{0});
  for (int64_t outer = 0; outer < s.outer; ++outer) {
    for (const int64_t index : indices) {
      const bool inside = index >= 0 && index < s.extent;
      for (int64_t i = 0; inside && i < s.inner; ++i) {
        dx.data()[(outer * s.extent + index) * s.inner + i] += grad[i];
      }
      grad += s.inner;
    }
  }
}

std::vector<TensorSpec> infer_onehot(const OpView& op) {
  const auto o = op.options<OnehotOptions>();
  const TensorSpec& indices = op.input(0);
  const TensorSpec& values = op.input(1);
  require_device_dtype(values, "onehot (C1): values");
  require(values.shape == Shape{2}, "onehot (C1): values must be [off, on] with shape (2,), got {}",
          to_string(values));
  require_index(indices, "onehot (C2): indices");
  const int axis = axis_of(op, o.axis, indices.shape.rank() + 1);
  require(o.classes >= 0, "onehot (C4): classes must not be negative, got {}", o.classes);
  std::vector<int64_t> dims = indices.shape.dims();
  dims.insert(dims.begin() + axis, o.classes);
  return {{Shape(std::move(dims)), values.dtype, {}}};
}

/// Calls visit(flat index, whether it is on) for every element of the result, in row-major order.
template <typename Visit>
void visit_onehot(const AxisSplit& s, const std::vector<int64_t>& indices, Visit visit) {
  for (int64_t e = 0; e < s.outer * s.extent * s.inner; ++e) {
    const int64_t position = e / s.inner % s.extent;
    const int64_t lane = e / (s.extent * s.inner) * s.inner + e % s.inner;
    visit(e, at(indices, lane) == position);
  }
}

template <typename T>
void reference_onehot(const KernelArgs& k) {
  const AxisSplit s(k.out_shape(0), normalize_axis(k.options<OnehotOptions>().axis,
                                                   k.out_shape(0).rank(), "onehot"));
  const auto indices = indices_of(k, 0);
  visit_element<T>(k.in_dtype(1), [&]<typename E>(E) {
    const auto values = k.in<E>(1);
    E* const y = k.out<E>(0).data();
    visit_onehot(s, indices, [&](int64_t e, bool on) { y[e] = values[on ? 1 : 0]; });
  });
}

std::vector<TensorSpec> infer_onehot_grad(const OpView& op) {
  const auto o = op.options<OnehotOptions>();
  const TensorSpec& grad = op.input(0);
  const Shape& indices = op.input(1).shape;
  require_float(grad, "onehot_grad (C1): grad");
  require_index(op.input(1), "onehot_grad (C2): indices");
  const int axis = axis_of(op, o.axis, indices.rank() + 1);
  std::vector<int64_t> dims = indices.dims();
  dims.insert(dims.begin() + axis, o.classes);
  require(grad.shape == Shape(dims), "onehot_grad (C4): grad must have shape {}, got {}",
          to_string(Shape(dims)), to_string(grad));
  return {{{2}, grad.dtype, {}}};
}

template <typename T>
void reference_onehot_grad(const KernelArgs& k) {
  const AxisSplit s(k.in_shape(0), normalize_axis(k.options<OnehotOptions>().axis,
                                                  k.in_shape(0).rank(), "onehot"));
  const auto grad = k.in<T>(0);
  std::vector<bool> on;
  visit_onehot(s, indices_of(k, 1), [&](int64_t, bool is_on) { on.push_back(is_on); });
  for (size_t v = 0; v < 2; ++v) {
    k.out<T>(0)[v] = canonical_sum<T>(
        std::ssize(grad), [&](int64_t e) { return at(on, e) == (v == 1) ? grad.data()[e] : T{0}; });
  }
}

HostTensor i32_values(Shape shape, const std::vector<int32_t>& values) {
  return HostTensor::of<int32_t>(std::move(shape), i32, values);
}

}  // namespace

const OpDef& gather_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Gather";
    d.name = "gather";
    d.doc =
        "Slices of x along an axis at given indices, as numpy.take. An index outside the axis "
        "yields NaN (integers and bool: zero), or zero if an option says so. (C1) x has a device "
        "dtype. (C2) indices is int32 or uint32. (C3) The axis exists.";
    d.inputs = {{"x"}, {"indices"}};
    d.outputs = {"y"};
    d.set_options(GatherOptions{});
    d.infer = infer_gather;
    d.grad = grad_gather;
    d.reference_float = reference_gather<float>;
    d.reference_double = reference_gather<double>;
    const auto with = [](int64_t axis, bool zero) {
      return to_attrs(GatherOptions{.axis = axis, .zero_out_of_range = zero});
    };
    d.samples = {{.inputs = {f32_spec({5, 3}), i32_spec({4})},
                  .values = {std::nullopt, i32_values({4}, {4, 0, 4, 2})}},
                 {.inputs = {f32_spec({2, 4, 3}), {{2, 2}, u32, {}}},
                  .options = with(1, false),
                  .values = {std::nullopt, i32_values({2, 2}, {3, 3, 0, 1}).cast(u32)}},
                 {.inputs = {f32_spec({4}), i32_spec({})},
                  .options = with(-1, false),
                  .values = {std::nullopt, i32_values({}, {2})}},
                 {.inputs = {f32_spec({4, 2}), i32_spec({3})},
                  .options = with(0, true),
                  .values = {std::nullopt, i32_values({3}, {-1, 1, 4})}},
                 {.inputs = {f32_spec({4, 2}), i32_spec({2})},
                  .values = {std::nullopt, i32_values({2}, {7, 1})},
                  .gradient = false},
                 {.inputs = {i32_spec({4, 2}), i32_spec({0})}, .gradient = false}};
    d.must_fail = {{"(C1)", {{{4}, f64, {}}, i32_spec({2})}, {}},
                   {"(C2)", {f32_spec({4}), f32_spec({2})}, {}},
                   {"(C3)", {f32_spec({4}), i32_spec({2})}, with(1, false)},
                   {"(C3)", {f32_spec({}), i32_spec({2})}, {}}};
    return d;
  }();
  return def;
}

const OpDef& gather_grad_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "GatherGrad";
    d.name = "gather_grad";
    d.doc =
        "Zeros of gather's operand with grad's slices added at the indices, in ascending order of "
        "their place; indices "
        "out of range add nothing. (C1) grad is floating point. (C2) indices is int32 or uint32. "
        "(C3) The axis exists "
        "and its size is not negative. (C4) grad has the indices' axes at that axis.";
    d.inputs = {{"grad"}, {"indices"}};
    d.outputs = {"dx"};
    d.set_options(GatherGradOptions{});
    d.infer = infer_gather_grad;
    d.grad = grad_gather_grad;
    d.reference_float = reference_gather_grad<float>;
    d.reference_double = reference_gather_grad<double>;
    d.flops = [](const OpView& op) { return static_cast<double>(op.input(0).elements()); };
    const auto with = [](int64_t axis, int64_t size) {
      return to_attrs(GatherGradOptions{.axis = axis, .size = size});
    };
    d.samples = {{.inputs = {f32_spec({4, 3}), i32_spec({4})},
                  .options = with(0, 5),
                  .values = {std::nullopt, i32_values({4}, {4, 0, 4, 9})}},
                 {.inputs = {f32_spec({2, 2, 2, 3}), i32_spec({2, 2})},
                  .options = with(1, 4),
                  .values = {std::nullopt, i32_values({2, 2}, {3, 3, -1, 1})}}};
    d.must_fail = {{"(C1)", {i32_spec({4, 3}), i32_spec({4})}, with(0, 5)},
                   {"(C2)", {f32_spec({4, 3}), f32_spec({4})}, with(0, 5)},
                   {"(C3)", {f32_spec({4, 3}), i32_spec({4})}, with(2, 5)},
                   {"(C4)", {f32_spec({4, 3}), i32_spec({4})}, with(1, 5)}};
    return d;
  }();
  return def;
}

const OpDef& onehot_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "OneHot";
    d.name = "onehot";
    d.doc =
        "A new axis of `classes` elements: values[1] at the index, values[0] elsewhere. (C1) "
        "values has shape (2,) and a "
        "device dtype. (C2) indices is int32 or uint32. (C3) The axis is one of the result's. (C4) "
        "classes is not "
        "negative.";
    d.inputs = {{"indices"}, {"values"}};
    d.outputs = {"y"};
    d.set_options(OnehotOptions{});
    d.infer = infer_onehot;
    d.grad = [](GradContext& g) {
      return Tensors{
          {}, emit_one(onehot_grad_def(), {g.grad(0), g.input(0)}, g.options<OnehotOptions>())};
    };
    d.reference_float = reference_onehot<float>;
    d.reference_double = reference_onehot<double>;
    const auto with = [](int64_t classes, int64_t axis) {
      return to_attrs(OnehotOptions{.classes = classes, .axis = axis});
    };
    d.samples = {
        {.inputs = {i32_spec({4}), f32_spec({2})},
         .options = with(3, -1),
         .values = {i32_values({4}, {0, 2, -1, 3})}},
        {.inputs = {i32_spec({2, 3}), f32_spec({2})},
         .options = with(4, 1),
         .values = {i32_values({2, 3}, {0, 1, 2, 3, 0, 3})}},
        {.inputs = {i32_spec({}), i32_spec({2})}, .options = with(5, 0), .gradient = false}};
    d.must_fail = {{"(C1)", {i32_spec({4}), f32_spec({3})}, with(3, -1)},
                   {"(C2)", {f32_spec({4}), f32_spec({2})}, with(3, -1)},
                   {"(C3)", {i32_spec({4}), f32_spec({2})}, with(3, 2)},
                   {"(C4)", {i32_spec({4}), f32_spec({2})}, with(-3, 0)}};
    return d;
  }();
  return def;
}

const OpDef& onehot_grad_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "OneHotGrad";
    d.name = "onehot_grad";
    d.audience = Audience::kOperators;
    d.doc =
        "The sums of grad where onehot wrote off and where it wrote on, in the canonical order "
        "over all elements. (C1) "
        "grad is floating point. (C2) indices is int32 or uint32. (C3) The axis is one of grad's. "
        "(C4) grad has the "
        "shape of onehot's result.";
    d.inputs = {{"grad"}, {"indices"}};
    d.outputs = {"dvalues"};
    d.set_options(OnehotOptions{});
    d.infer = infer_onehot_grad;
    d.grad = [](GradContext& g) {
      return Tensors{onehot(g.input(1), g.grad(0), g.options<OnehotOptions>()), {}};
    };
    d.reference_float = reference_onehot_grad<float>;
    d.reference_double = reference_onehot_grad<double>;
    d.flops = [](const OpView& op) { return static_cast<double>(op.input(0).elements()); };
    const auto with = [](int64_t classes, int64_t axis) {
      return to_attrs(OnehotOptions{.classes = classes, .axis = axis});
    };
    d.samples = {{.inputs = {f32_spec({2, 4, 3}), i32_spec({2, 3})},
                  .options = with(4, 1),
                  .values = {std::nullopt, i32_values({2, 3}, {0, 1, 2, 3, 0, 9})}}};
    d.must_fail = {{"(C1)", {i32_spec({4, 3}), i32_spec({4})}, with(3, -1)},
                   {"(C2)", {f32_spec({4, 3}), f32_spec({4})}, with(3, -1)},
                   {"(C3)", {f32_spec({4, 3}), i32_spec({4})}, with(3, -3)},
                   {"(C4)", {f32_spec({4, 3}), i32_spec({4})}, with(2, -1)}};
    return d;
  }();
  return def;
}

Tensor gather(TensorArg t, TensorArg indices, const GatherOptions& options) {
  return emit_one(gather_def(), {t, indices}, options);
}
Tensor gather_grad(TensorArg grad, TensorArg indices, const GatherGradOptions& options) {
  return emit_one(gather_grad_def(), {grad, indices}, options);
}
Tensor onehot(TensorArg indices, TensorArg values, const OnehotOptions& options) {
  return emit_one(onehot_def(), {indices, values}, options);
}

std::vector<const OpDef*> gather_ops() {
  return {&gather_def(), &gather_grad_def(), &onehot_def(), &onehot_grad_def()};
}

Tensor unfold(TensorArg t, int64_t axis, int64_t size, int64_t step) {
  const int a = normalize_axis(axis, axes_of(t->shape()), "unfold");
  const TensorArg x{t->rank() == 0 ? reshape(t, {1}) : t.tensor, t.where};
  const int64_t extent = x->shape()[a];
  require(size >= 0 && size <= extent && step >= 1,
          "unfold: size must be in [0, {}] and step at least 1, got {} and {}", extent, size, step);
  const int64_t count = (extent - size) / step + 1;
  std::vector<int32_t> indices;
  for (int64_t w = 0; w < count; ++w)
    for (int64_t k = 0; k < size; ++k) indices.push_back(static_cast<int32_t>(w * step + k));
  const Tensor at = t->graph().constant(HostTensor::of<int32_t>({count, size}, i32, indices), "at");
  const Tensor windows = gather(x, {at, t.where}, {.axis = a});
  if (t->rank() == 0) return reshape({windows, t.where}, {size});
  std::vector<int64_t> order;  // The elements of a window are axis a + 1.
  for (int i = 0; i < windows.rank(); ++i)
    if (i != a + 1) order.push_back(i);
  order.push_back(a + 1);
  return transpose({windows, t.where}, order);
}

}  // namespace sluice::ops
