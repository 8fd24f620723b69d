#include "sluice/ops/slice.h"

#include <algorithm>
#include <set>

#include "sluice/ops/basic.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

/// Maps the elements of a slice to their offsets in the operand.
template <typename Options>
StridedIndex strided_index(const Shape& shape, const Options& o) {
  std::vector<int64_t> strides = shape.strides();
  int64_t base = 0;
  for (size_t a = 0; a < strides.size(); ++a) {
    base += o.starts[a] * strides[a];
    strides[a] *= o.sizes[a] > 1 ? o.steps[a] : 0;
  }
  return StridedIndex(o.sizes, std::move(strides), base);
}

/// Checks (C2) and (C3).
template <typename Options>
void check(const Shape& shape, const Options& o, std::string_view name) {
  const size_t rank = shape.dims().size();
  require(o.starts.size() == rank && o.sizes.size() == rank && o.steps.size() == rank,
          "{} (C2): starts, sizes and steps must have {} entries for {}, got {}, {} and {}", name,
          rank, to_string(shape), o.starts.size(), o.sizes.size(), o.steps.size());
  for (size_t a = 0; a < rank; ++a) {
    const int64_t dim = shape[static_cast<int>(a)];
    const int64_t start = o.starts[a];
    const int64_t size = o.sizes[a];
    const int64_t step = o.steps[a];
    require(step != 0, "{} (C2): step on axis {} must not be 0", name, a);
    const bool inside =
        size == 0 || (start >= 0 && start < dim && size > 0 &&
                      size - 1 <= (step > 0 ? (dim - 1 - start) / step : -(start / step)));
    require(inside,
            "{} (C3): the slice must be inside axis {} of {}, got {} elements from {} with step {}",
            name, a, to_string(shape), size, start, step);
  }
}

std::vector<TensorSpec> infer_slice(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const auto o = op.options<SliceOptions>();
  const std::string& name = op.def().name;
  require_device_dtype(x, name + " (C1): x");
  check(x.shape, o, name);
  return {{Shape(o.sizes), x.dtype, {}}};
}

std::vector<TensorSpec> infer_slice_grad(const OpView& op) {
  const TensorSpec& grad = op.input(0);
  const auto o = op.options<SliceGradOptions>();
  require_float(grad, "slice_grad (C1): grad");
  check(o.shape, o, "slice_grad");
  require(grad.shape == Shape(o.sizes),
          "slice_grad (C4): grad must have the shape of the slice, {}, got {}",
          to_string(Shape(o.sizes)), to_string(grad));
  return {{o.shape, grad.dtype, {}}};
}

Tensors grad_slice(GradContext& g) {
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
void reference_slice(const KernelArgs& k) {
  const StridedIndex from = strided_index(k.in_shape(0), k.options<SliceOptions>());
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const E* const x = k.in<E>(0).data();
    int64_t i = 0;
    for (E& y : k.out<E>(0)) y = x[from(i++)];
  });
}

template <typename T>
void reference_slice_grad(const KernelArgs& k) {
  const StridedIndex to = strided_index(k.out_shape(0), k.options<SliceGradOptions>());
  const auto dx = k.out<T>(0);
  std::fill(dx.begin(), dx.end(), T{0});
  int64_t i = 0;
  for (const T grad : k.in<T>(0)) dx.data()[to(i++)] = grad;
}

std::vector<TensorSpec> infer_update(const OpView& op) {
  const TensorSpec& t = op.input(0);
  const TensorSpec& y = op.input(1);
  const auto o = op.options<SliceOptions>();
  require_device_dtype(t, "update_slice_ (C1): t");
  require(t.dtype == y.dtype, "update_slice_ (C1): y must have the dtype of t, {}, got {}",
          name_of(t.dtype), to_string(y));
  check(t.shape, o, "update_slice_");
  require(y.shape == Shape(o.sizes),
          "update_slice_ (C4): y must have the shape of the slice, {}, got {}",
          to_string(Shape(o.sizes)), to_string(y));
  return {t};
}

Tensors grad_update(GradContext& g) {
  const auto o = g.options<SliceOptions>();
  const Tensor zeros = init(g.graph(), g.op().input(1));
  return {g.needs(0) ? update_slice_(identity(g.grad(0)), zeros, o) : Tensor{},
          g.needs(1) ? emit_one(slice_def(), {g.grad(0)}, o) : Tensor{}};
}

template <typename T>
void reference_update(const KernelArgs& k) {
  const StridedIndex to = strided_index(k.in_shape(0), k.options<SliceOptions>());
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const auto old = k.in<E>(0);
    E* const t = k.out<E>(0).data();
    if (old.data() != t) std::copy(old.begin(), old.end(), t);
    int64_t i = 0;
    for (const E y : k.in<E>(1)) t[to(i++)] = y;
  });
}

std::optional<int64_t> entry(const SliceBounds& list, size_t i) {
  return list.empty() ? std::nullopt : list[i];
}

SliceOptions whole(const Shape& shape) {
  const size_t rank = shape.dims().size();
  return {std::vector<int64_t>(rank, 0), shape.dims(), std::vector<int64_t>(rank, 1)};
}

OpDef slice_like(const char* type, const char* name, const char* doc) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = std::string(doc) +
          " (C1) x has a device dtype. (C2) Each list has an entry for each axis of x; a step is "
          "not 0. (C3) The elements lie inside x.";
  d.inputs = {{"x"}};
  d.outputs = {"y"};
  d.set_options(SliceOptions{});
  d.infer = infer_slice;
  d.grad = grad_slice;
  d.reference_float = reference_slice<float>;
  d.reference_double = reference_slice<double>;
  const auto of = [](std::vector<int64_t> starts, std::vector<int64_t> sizes,
                     std::vector<int64_t> steps) {
    return to_attrs(SliceOptions{std::move(starts), std::move(sizes), std::move(steps)});
  };
  d.samples = {
      {.inputs = {f32_spec({7})}, .options = of({2}, {3}, {1})},
      {.inputs = {f32_spec({4, 5})}, .options = of({3, 1}, {4, 3}, {-1, 1})},
      {.inputs = {f32_spec({4, 5})}, .options = of({1, 0}, {2, 5}, {1, 1})},
      {.inputs = {f32_spec({4, 5})}, .options = of({2, 1}, {1, 3}, {1, 1})},
      {.inputs = {f32_spec({3, 4, 2})}, .options = of({1, 1, 0}, {2, 2, 2}, {1, 1, 1})},
      {.inputs = {f32_spec({3, 4, 2})}, .options = of({2, 2, 0}, {1, 2, 2}, {-1, 1, 1})},
      {.inputs = {f32_spec({})}},
      {.inputs = {f32_spec({9})}, .options = of({1}, {3}, {3})},
      {.inputs = {f32_spec({4, 7})}, .options = of({3, 6}, {2, 4}, {-2, -2})},
      {.inputs = {i32_spec({3, 2})}, .options = of({1, 0}, {0, 2}, {1, 1}), .gradient = false}};
  d.must_fail = {{"(C1)", {{{4}, f64, {}}}, of({0}, {1}, {1})},
                 {"(C2)", {f32_spec({4, 2})}, of({0}, {1}, {1})},
                 {"(C2)", {f32_spec({4})}, of({0}, {1}, {0})},
                 {"(C3)", {f32_spec({4})}, of({1}, {3}, {2})},
                 {"(C3)", {f32_spec({4})}, of({2}, {3}, {-2})},
                 {"(C3)", {f32_spec({4})}, of({2}, {3}, {1})},
                 {"(C3)", {f32_spec({4})}, of({1}, {3}, {-1})},
                 {"(C3)", {f32_spec({4})}, of({-1}, {1}, {1})}};
  return d;
}

}  // namespace

const OpDef& slice_def() {
  static const OpDef def =
      slice_like("Slice", "slice",
                 "From each axis, sizes[a] elements from starts[a] on, forwards or backwards.");
  return def;
}

const OpDef& slice_in_place_def() {
  static const OpDef def =
      slice_like("SliceInplace", "slice_", "slice as a view that is kept in step with x.");
  return def;
}

const OpDef& slice_grad_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "SliceGrad";
    d.name = "slice_grad";
    d.audience = Audience::kOperators;
    d.doc =
        "Zeros of the sliced operand's shape with grad where the slice was. (C1) grad is floating "
        "point. (C2) Each list "
        "has an entry for each axis of the shape; a step is not 0. (C3) The elements lie inside "
        "the shape. (C4) grad "
        "has the slice's shape.";
    d.inputs = {{"grad"}};
    d.outputs = {"dx"};
    d.set_options(SliceGradOptions{});
    d.infer = infer_slice_grad;
    d.grad = grad_of_grad;
    d.reference_float = reference_slice_grad<float>;
    d.reference_double = reference_slice_grad<double>;
    const auto of = [](std::vector<int64_t> starts, std::vector<int64_t> sizes,
                       std::vector<int64_t> steps, Shape shape) {
      return to_attrs(SliceGradOptions{std::move(starts), std::move(sizes), std::move(steps),
                                       std::move(shape)});
    };
    d.samples = {{.inputs = {f32_spec({3})}, .options = of({2}, {3}, {1}, {7})},
                 {.inputs = {f32_spec({4, 3})}, .options = of({3, 1}, {4, 3}, {-1, 1}, {4, 5})},
                 {.inputs = {f32_spec({2, 3})}, .options = of({3, 0}, {2, 3}, {-2, 2}, {4, 5})}};
    d.must_fail = {{"(C1)", {i32_spec({1})}, of({0}, {1}, {1}, {4})},
                   {"(C2)", {f32_spec({1})}, of({0}, {1}, {0}, {4})},
                   {"(C3)", {f32_spec({2})}, of({3}, {2}, {1}, {4})},
                   {"(C4)", {f32_spec({2})}, of({0}, {1}, {1}, {4})}};
    return d;
  }();
  return def;
}

const OpDef& update_slice_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "SliceUpdateInplace";
    d.name = "update_slice_";
    d.doc =
        "t with y in place of the elements that slice takes with the same options, in t's storage. "
        "(C1) t and y have one device dtype. (C2) Each list has an entry for each axis of t; a "
        "step "
        "is not 0. (C3) The elements lie inside t. (C4) y has the slice's shape.";
    d.inputs = {{"t", Mode::kUpdate}, {"y"}};
    d.outputs = {"t"};
    d.set_options(SliceOptions{});
    d.aliases = {{0, 0}};
    d.may_coincide = {{0, 0}};
    d.infer = infer_update;
    d.grad = grad_update;
    d.reference_float = reference_update<float>;
    d.reference_double = reference_update<double>;
    const auto of = [](std::vector<int64_t> starts, std::vector<int64_t> sizes,
                       std::vector<int64_t> steps) {
      return to_attrs(SliceOptions{std::move(starts), std::move(sizes), std::move(steps)});
    };
    d.samples = {
        {.inputs = {f32_spec({7}), f32_spec({3})}, .options = of({2}, {3}, {1})},
        {.inputs = {f32_spec({4, 5}), f32_spec({4, 3})}, .options = of({3, 1}, {4, 3}, {-1, 1})},
        {.inputs = {f32_spec({4, 5}), f32_spec({2, 3})}, .options = of({3, 0}, {2, 3}, {-2, 2})},
        {.inputs = {f32_spec({}), f32_spec({})}},
        {.inputs = {i32_spec({3}), i32_spec({1})},
         .options = of({1}, {1}, {1}),
         .gradient = false}};
    d.must_fail = {{"(C1)", {f32_spec({4}), i32_spec({1})}, of({0}, {1}, {1})},
                   {"(C2)", {f32_spec({4}), f32_spec({1})}, of({0}, {1}, {0})},
                   {"(C3)", {f32_spec({4}), f32_spec({3})}, of({0}, {3}, {2})},
                   {"(C3)", {f32_spec({4}), f32_spec({3})}, of({2}, {3}, {1})},
                   {"(C4)", {f32_spec({4}), f32_spec({2})}, of({2}, {1}, {1})}};
    return d;
  }();
  return def;
}

namespace {

/// Converts numpy's bounds to options; nullopt if no bound and no step is given.
std::optional<SliceOptions> resolve(TensorArg t, const SliceBounds& start, const SliceBounds& stop,
                                    const SliceBounds& step, const std::vector<int64_t>& axes) {
  size_t count = axes.size();
  for (const SliceBounds* list : {&start, &stop, &step}) {
    if (count == 0) count = list->size();
    require(list->empty() || list->size() == count,
            "slice: lists must have equal lengths, got {} and {} entries", count, list->size());
  }
  const int rank = t->rank();
  require(count <= t->shape().dims().size(),
          "slice: lists must have at most {} entries for {}, got {}", rank, to_string(t->shape()),
          count);
  SliceOptions o = whole(t->shape());
  std::set<int> seen;
  bool bounded = false;
  for (size_t i = 0; i < count; ++i) {
    const int axis = axes.empty() ? static_cast<int>(i) : normalize_axis(axes[i], rank, "slice");
    require(seen.insert(axis).second, "slice: axis {} is given twice", axis);
    const auto from = entry(start, i);
    const auto to = entry(stop, i);
    const auto by = entry(step, i);
    bounded = bounded || from.has_value() || to.has_value() || by.has_value();
    const int64_t step = by.value_or(1);
    require(step != 0, "slice: step must not be 0");
    const int64_t dim = t->shape()[axis];
    const bool forward = step > 0;
    // numpy clamps to [0, dim] going forwards and to [-1, dim - 1] going backwards.
    const int64_t low = forward ? 0 : -1;
    const int64_t high = forward ? dim : dim - 1;
    const auto clamped = [&](std::optional<int64_t> bound, int64_t otherwise) {
      if (!bound.has_value()) return otherwise;
      return std::clamp(*bound < 0 ? *bound + dim : *bound, low, high);
    };
    const int64_t first = clamped(from, forward ? 0 : dim - 1);
    const int64_t last = clamped(to, forward ? dim : -1);
    const int64_t reach = forward ? last - first : first - last;
    // (reach - 1) / -step would overflow for the minimum step.
    const int64_t hops = (reach - 1) / step;
    const int64_t size = reach <= 0 ? 0 : (forward ? hops : -hops) + 1;
    at(o.sizes, axis) = size;
    at(o.starts, axis) = size == 0 ? 0 : first;
    // At most one element: the length of the step does not matter.
    at(o.steps, axis) = size > 1 ? step : forward ? 1 : -1;
  }
  return bounded ? std::optional(o) : std::nullopt;
}

}  // namespace

Tensor slice(TensorArg t, const SliceBounds& start, const SliceBounds& stop,
             const SliceBounds& step, const std::vector<int64_t>& axes) {
  const auto o = resolve(t, start, stop, step, axes);
  return o.has_value() ? emit_one(slice_def(), {t}, *o) : t.tensor;
}

Tensor slice_(TensorArg t, const SliceBounds& start, const SliceBounds& stop,
              const SliceBounds& step, const std::vector<int64_t>& axes) {
  const auto o = resolve(t, start, stop, step, axes);
  if (!o.has_value()) return t.tensor;
  const Tensor view = emit_one(slice_in_place_def(), {t}, *o);
  const Tensor source = t.tensor;
  source.graph().keep_in_step(
      {.view = view,
       .sources = {source},
       .refresh = [=] { update_slice_(view, emit_one(slice_def(), {source}, *o)); },
       .write_back = [=] { update_slice_(source, view, *o); }});
  return view;
}

Tensor select(TensorArg t, int64_t index, int64_t axis) {
  const int a = normalize_axis(axis, t->rank(), "select");
  const int64_t dim = t->shape()[a];
  require(index >= -dim && index < dim,
          "select: index must be in [{}, {}) on axis {} of {}, got {}", -dim, dim, axis,
          to_string(t->shape()), index);
  const int64_t at = index < 0 ? index + dim : index;
  return squeeze({slice(t, {at}, {at + 1}, {}, {a}), t.where}, std::vector<int64_t>{a});
}

Tensor flip(TensorArg t, const std::vector<int64_t>& axes) {
  const size_t flipped = axes.empty() ? static_cast<size_t>(t->rank()) : axes.size();
  return slice(t, {}, {}, SliceBounds(flipped, -1), axes);
}

Tensor update_slice_(TensorArg t, TensorArg y, const SliceOptions& options) {
  return emit_one(update_slice_def(), {t, y}, options);
}
Tensor update_slice_(TensorArg t, TensorArg y) { return update_slice_(t, y, whole(t->shape())); }

std::vector<const OpDef*> slice_ops() {
  return {&slice_def(), &slice_in_place_def(), &slice_grad_def(), &update_slice_def()};
}

}  // namespace sluice::ops
