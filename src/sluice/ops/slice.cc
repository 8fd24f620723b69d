#include "sluice/ops/slice.h"

#include <algorithm>

#include "sluice/ops/indexing.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

/// Where the elements of a slice lie in the operand.
template <typename Options>
StridedIndex places(const Shape& shape, const Options& o) {
  std::vector<int64_t> strides = shape.strides();
  int64_t base = 0;
  for (size_t a = 0; a < strides.size(); ++a) {
    base += o.starts[a] * strides[a];
    strides[a] *= o.steps[a];
  }
  return StridedIndex(o.sizes, std::move(strides), base);
}

/// Checks (C2) and (C3).
template <typename Options>
void check(const Shape& shape, const Options& o, std::string_view name) {
  const auto rank = static_cast<size_t>(shape.rank());
  require(o.starts.size() == rank && o.sizes.size() == rank && o.steps.size() == rank,
          "{} (C2): starts, sizes and steps need one entry for each axis of {}", name,
          to_string(shape));
  for (size_t a = 0; a < rank; ++a) {
    const int64_t dim = shape[static_cast<int>(a)];
    const int64_t start = o.starts[a];
    const int64_t size = o.sizes[a];
    const int64_t step = o.steps[a];
    require(step == 1 || step == -1, "{} (C2): step {} on axis {} is not 1 or -1", name, step, a);
    const bool inside = size == 0 || (start >= 0 && start < dim && size > 0 &&
                                      (step == 1 ? size <= dim - start : size <= start + 1));
    require(inside, "{} (C3): {} elements from {} by {} leave axis {} of {}", name, size, start,
            step, a, to_string(shape));
  }
}

std::vector<TensorSpec> infer(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const auto o = op.options<SliceOptions>();
  require_device_dtype(x, "slice (C1): x");
  check(x.shape, o, "slice");
  return {{Shape(o.sizes), x.dtype, {}}};
}

std::vector<TensorSpec> infer_grad(const OpView& op) {
  const TensorSpec& grad = op.input(0);
  const auto o = op.options<SliceGradOptions>();
  require_float(grad, "slice_grad (C1): grad");
  check(o.shape, o, "slice_grad");
  require(grad.shape == Shape(o.sizes), "slice_grad (C4): grad is {}, the slice {}",
          to_string(grad), to_string(Shape(o.sizes)));
  return {{o.shape, grad.dtype, {}}};
}

Tensors grad(GradContext& g) {
  const auto o = g.options<SliceOptions>();
  return {emit_one(
      slice_grad_def(), {g.grad(0)},
      SliceGradOptions{
          .starts = o.starts, .sizes = o.sizes, .steps = o.steps, .shape = g.op().input(0).shape})};
}

Tensors grad_of_grad(GradContext& g) {
  const auto o = g.options<SliceGradOptions>();
  return {emit_one(slice_def(), {g.grad(0)},
                   SliceOptions{.starts = o.starts, .sizes = o.sizes, .steps = o.steps})};
}

template <typename T>
void reference(const KernelArgs& k) {
  const StridedIndex from = places(k.in_shape(0), k.options<SliceOptions>());
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const auto x = k.in<E>(0);
    const auto y = k.out<E>(0);
    for (size_t i = 0; i < y.size(); ++i)
      y[i] = x[static_cast<size_t>(from(static_cast<int64_t>(i)))];
  });
}

template <typename T>
void reference_grad(const KernelArgs& k) {
  const StridedIndex to = places(k.out_shape(0), k.options<SliceGradOptions>());
  const auto grad = k.in<T>(0);
  const auto dx = k.out<T>(0);
  std::fill(dx.begin(), dx.end(), T{0});
  for (size_t i = 0; i < grad.size(); ++i)
    dx[static_cast<size_t>(to(static_cast<int64_t>(i)))] = grad[i];
}

std::optional<int64_t> entry(const SliceBounds& list, size_t i) {
  return list.empty() ? std::nullopt : list[i];
}

}  // namespace

const OpDef& slice_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Slice";
    d.name = "slice";
    d.doc =
        "From each axis, sizes[a] elements from starts[a] on, forwards or backwards. (C1) x has a "
        "device dtype. (C2) "
        "Each list has an entry for each axis of x; a step is 1 or -1. (C3) The elements lie "
        "inside x.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.options = to_attrs(SliceOptions{});
    d.infer = infer;
    d.grad = grad;
    d.reference_float = reference<float>;
    d.reference_double = reference<double>;
    const auto of = [](std::vector<int64_t> starts, std::vector<int64_t> sizes,
                       std::vector<int64_t> steps) {
      return to_attrs(SliceOptions{std::move(starts), std::move(sizes), std::move(steps)});
    };
    d.samples = {
        {.inputs = {f32_spec({7})}, .options = of({2}, {3}, {1})},
        {.inputs = {f32_spec({4, 5})}, .options = of({3, 1}, {4, 3}, {-1, 1})},
        {.inputs = {f32_spec({})}},
        {.inputs = {i32_spec({3, 2})}, .options = of({1, 0}, {0, 2}, {1, 1}), .gradient = false}};
    d.must_fail = {{"(C1)", {{{4}, f64, {}}}, of({0}, {1}, {1})},
                   {"(C2)", {f32_spec({4, 2})}, of({0}, {1}, {1})},
                   {"(C2)", {f32_spec({4})}, of({0}, {1}, {2})},
                   {"(C3)", {f32_spec({4})}, of({2}, {3}, {1})},
                   {"(C3)", {f32_spec({4})}, of({1}, {3}, {-1})},
                   {"(C3)", {f32_spec({4})}, of({-1}, {1}, {1})}};
    return d;
  }();
  return def;
}

const OpDef& slice_grad_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "SliceGrad";
    d.name = "slice_grad";
    d.doc =
        "Zeros of the sliced operand's shape with grad where the slice was. (C1) grad is floating "
        "point. (C2) Each list "
        "has an entry for each axis of the shape; a step is 1 or -1. (C3) The elements lie inside "
        "the shape. (C4) grad "
        "has the slice's shape.";
    d.inputs = {{"grad"}};
    d.outputs = {"dx"};
    d.options = to_attrs(SliceGradOptions{});
    d.infer = infer_grad;
    d.grad = grad_of_grad;
    d.reference_float = reference_grad<float>;
    d.reference_double = reference_grad<double>;
    const auto of = [](std::vector<int64_t> starts, std::vector<int64_t> sizes,
                       std::vector<int64_t> steps, Shape shape) {
      return to_attrs(SliceGradOptions{std::move(starts), std::move(sizes), std::move(steps),
                                       std::move(shape)});
    };
    d.samples = {{.inputs = {f32_spec({3})}, .options = of({2}, {3}, {1}, {7})},
                 {.inputs = {f32_spec({4, 3})}, .options = of({3, 1}, {4, 3}, {-1, 1}, {4, 5})}};
    d.must_fail = {{"(C1)", {i32_spec({1})}, of({0}, {1}, {1}, {4})},
                   {"(C2)", {f32_spec({1})}, of({0}, {1}, {0}, {4})},
                   {"(C3)", {f32_spec({2})}, of({3}, {2}, {1}, {4})},
                   {"(C4)", {f32_spec({2})}, of({0}, {1}, {1}, {4})}};
    return d;
  }();
  return def;
}

Tensor slice(TensorArg t, const SliceBounds& start, const SliceBounds& stop,
             const SliceBounds& step, const std::vector<int64_t>& axes) {
  size_t count = axes.size();
  for (const SliceBounds* list : {&start, &stop, &step}) {
    if (count == 0) count = list->size();
    require(list->empty() || list->size() == count, "slice: lists of {} and {} entries", count,
            list->size());
  }
  const int rank = t->rank();
  require(count <= static_cast<size_t>(rank), "slice: {} entries for the {} axes of {}", count,
          rank, to_string(t->shape()));
  SliceOptions o{std::vector<int64_t>(static_cast<size_t>(rank), 0), t->shape().dims(),
                 std::vector<int64_t>(static_cast<size_t>(rank), 1)};
  std::vector<bool> seen(static_cast<size_t>(rank));
  bool whole = true;
  for (size_t i = 0; i < count; ++i) {
    const int axis = axes.empty() ? static_cast<int>(i) : normalize_axis(axes[i], rank, "slice");
    const auto a = static_cast<size_t>(axis);
    require(!seen[a], "slice: axis {} is given twice", axis);
    seen[a] = true;
    const auto from = entry(start, i);
    const auto to = entry(stop, i);
    const auto by = entry(step, i);
    whole = whole && !from.has_value() && !to.has_value() && !by.has_value();
    o.steps[a] = by.value_or(1);
    require(o.steps[a] == 1 || o.steps[a] == -1, "slice: step {} is not 1 or -1", o.steps[a]);
    const int64_t dim = t->shape()[axis];
    const bool forward = o.steps[a] == 1;
    // numpy clamps to [0, dim] going forwards and to [-1, dim - 1] going backwards.
    const int64_t low = forward ? 0 : -1;
    const int64_t high = forward ? dim : dim - 1;
    const auto place = [&](std::optional<int64_t> bound, int64_t otherwise) {
      if (!bound.has_value()) return otherwise;
      return std::clamp(*bound < 0 ? *bound + dim : *bound, low, high);
    };
    const int64_t first = place(from, forward ? 0 : dim - 1);
    const int64_t last = place(to, forward ? dim : -1);
    o.sizes[a] = std::max<int64_t>(0, forward ? last - first : first - last);
    o.starts[a] = o.sizes[a] == 0 ? 0 : first;
  }
  return whole ? t.tensor : emit_one(slice_def(), {t}, o);
}

std::vector<const OpDef*> slice_ops() { return {&slice_def(), &slice_grad_def()}; }

}  // namespace sluice::ops
