#include "sluice/ops/concat.h"

#include <algorithm>
#include <limits>

#include "sluice/base/checked.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/slice.h"

namespace sluice::ops {
namespace {

int axis_of(const OpView& op, int64_t axis) {
  const Shape& shape = op.input(0).shape;
  require(axis >= -shape.rank() && axis < shape.rank(),
          "{} (C2): axis must be in [{}, {}) for shape {}, got {}", op.def().name, -shape.rank(),
          shape.rank(), to_string(shape), axis);
  return static_cast<int>(axis < 0 ? axis + shape.rank() : axis);
}

std::vector<TensorSpec> infer_concat(const OpView& op) {
  const std::string& name = op.def().name;
  require(op.inputs() >= 1, "{} (C1): requires at least one operand, got none", name);
  for (int i = 0; i < op.inputs(); ++i) {
    require_device_dtype(op.input(i), name + " (C1): x");
    require(op.input(i).dtype == op.input(0).dtype,
            "{} (C1): operand {} must have the dtype of operand 0, {}, got {}", name, i,
            name_of(op.input(0).dtype), to_string(op.input(i)));
  }
  const int axis = axis_of(op, op.options<ConcatOptions>().axis);
  Shape out = op.input(0).shape;
  for (int i = 1; i < op.inputs(); ++i) {
    Shape same_length = op.input(i).shape;
    const bool ranks = same_length.rank() == out.rank();
    const int64_t length = ranks ? same_length[axis] : 0;
    if (ranks) same_length[axis] = out[axis];
    require(ranks && same_length == out,
            "{} (C3): operand {} must have the shape of operand 0, {}, except on axis {}, got {}",
            name, i, to_string(op.input(0).shape), axis, to_string(op.input(i).shape));
    out[axis] = checked_add(out[axis], length);
  }
  return {{out, op.input(0).dtype, {}}};
}

std::vector<TensorSpec> infer_split(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const auto o = op.options<SplitOptions>();
  require_device_dtype(x, "split (C1): x");
  const int axis = axis_of(op, o.axis);
  require(!o.sizes.empty(), "split (C3): sizes must name at least one part, got none");
  std::vector<TensorSpec> out;
  int64_t left = x.shape[axis];
  for (const int64_t size : o.sizes) {
    require(size >= 0 && size <= left,
            "split (C3): sizes must not be negative and must sum to axis {} of {}, got {}", axis,
            to_string(x.shape), to_string(Shape(o.sizes)));
    left -= size;
    Shape part = x.shape;
    part[axis] = size;
    out.push_back({part, x.dtype, {}});
  }
  require(left == 0, "split (C3): sizes must not be negative and must sum to axis {} of {}, got {}",
          axis, to_string(x.shape), to_string(Shape(o.sizes)));
  return out;
}

Tensors grad_concat(GradContext& g) {
  const int axis = axis_of(g.op(), g.options<ConcatOptions>().axis);
  Tensors result;
  int64_t start = 0;
  for (int i = 0; i < g.op().inputs(); ++i) {
    const int64_t length = g.op().input(i).shape[axis];
    result.push_back(g.needs(i) ? slice(g.grad(0), {start}, {start + length}, {}, {axis})
                                : Tensor{});
    start += length;
  }
  return result;
}

Tensors grad_split(GradContext& g) {
  std::vector<TensorArg> parts;
  for (int i = 0; i < g.op().outputs(); ++i) parts.emplace_back(g.grad(i));
  return {concat(parts, g.options<SplitOptions>().axis)};
}

/// Copies rows of `length` elements: row r from `x + r·x_step` to `y + r·y_step`.
template <typename E>
void copy_rows(int64_t rows, int64_t length, const E* x, int64_t x_step, E* y, int64_t y_step) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(x + r * x_step, length, y + r * y_step);
}

template <typename T>
void reference_concat(const KernelArgs& k) {
  const int axis = axis_of(k.op(), k.options<ConcatOptions>().axis);
  const AxisSplit out(k.out_shape(0), axis);
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    E* y = k.out<E>(0).data();
    for (int i = 0; i < k.op().inputs(); ++i) {
      const int64_t length = k.in_shape(i)[axis] * out.inner;
      copy_rows(out.outer, length, k.in<E>(i).data(), length, y, out.extent * out.inner);
      y += length;
    }
  });
}

template <typename T>
void reference_split(const KernelArgs& k) {
  const int axis = axis_of(k.op(), k.options<SplitOptions>().axis);
  const AxisSplit in(k.in_shape(0), axis);
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const E* x = k.in<E>(0).data();
    for (int i = 0; i < k.op().outputs(); ++i) {
      const int64_t length = k.out_shape(i)[axis] * in.inner;
      copy_rows(in.outer, length, x, in.extent * in.inner, k.out<E>(i).data(), length);
      x += length;
    }
  });
}

OpDef concat_like(const char* type, const char* name, const char* doc) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = std::string(doc) +
          " (C1) There is at least one operand, all of one device dtype. (C2) The axis exists. "
          "(C3) The operands have the same size on every other axis.";
  d.inputs = {{"x"}};
  d.variadic = true;
  d.outputs = {"y"};
  d.set_options(ConcatOptions{});
  d.infer = infer_concat;
  d.grad = grad_concat;
  d.reference_float = reference_concat<float>;
  d.reference_double = reference_concat<double>;
  const auto along = [](int64_t axis) { return to_attrs(ConcatOptions{axis}); };
  d.samples = {{.inputs = {f32_spec({2}), f32_spec({3}), f32_spec({1})}},
               {.inputs = {f32_spec({2, 3}), f32_spec({2, 5})}, .options = along(-1)},
               {.inputs = {f32_spec({2, 1, 3}), f32_spec({2, 4, 3})}, .options = along(1)},
               {.inputs = {f32_spec({4})}},
               {.inputs = {i32_spec({0, 2}), i32_spec({3, 2})}, .gradient = false}};
  d.must_fail = {{"(C1)", {}, {}},
                 {"(C1)", {f32_spec({2}), i32_spec({2})}, {}},
                 {"(C2)", {f32_spec({2}), f32_spec({2})}, along(1)},
                 {"(C2)", {f32_spec({}), f32_spec({})}, {}},
                 {"(C3)", {f32_spec({2, 3}), f32_spec({2, 4})}, {}},
                 {"(C3)", {f32_spec({2, 3}), f32_spec({2})}, {}}};
  return d;
}

}  // namespace

const OpDef& concat_def() {
  static const OpDef def =
      concat_like("Concat", "concat", "The operands one after another along an axis.");
  return def;
}

const OpDef& concat_in_place_def() {
  static const OpDef def = concat_like("ConcatInplace", "concat_",
                                       "concat as a view that is kept in step with the operands.");
  return def;
}

const OpDef& split_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Split";
    d.name = "split";
    d.doc =
        "x cut into parts along an axis. (C1) x has a device dtype. (C2) The axis exists. (C3) "
        "There is at least one "
        "part, and the sizes sum to the axis.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.set_options(SplitOptions{});
    d.infer = infer_split;
    d.grad = grad_split;
    d.reference_float = reference_split<float>;
    d.reference_double = reference_split<double>;
    const auto into = [](std::vector<int64_t> sizes, int64_t axis) {
      return to_attrs(SplitOptions{.sizes = std::move(sizes), .axis = axis});
    };
    d.samples = {{.inputs = {f32_spec({6})}, .options = into({1, 2, 3}, 0)},
                 {.inputs = {f32_spec({2, 4, 3})}, .options = into({3, 1}, 1)},
                 {.inputs = {f32_spec({3, 4})}, .options = into({2, 2}, -1)},
                 {.inputs = {i32_spec({3})}, .options = into({3, 0}, 0), .gradient = false}};
    d.must_fail = {{"(C1)", {{{2}, i64, {}}}, into({2}, 0)},
                   {"(C2)", {f32_spec({2})}, into({2}, 3)},
                   {"(C3)", {f32_spec({2})}, into({}, 0)},
                   {"(C3)", {f32_spec({4})}, into({2, 1}, 0)},
                   {"(C3)", {f32_spec({4})}, into({5, -1}, 0)}};
    return d;
  }();
  return def;
}

Tensor concat(const std::vector<TensorArg>& ts, int64_t axis, std::source_location where) {
  return emit_one(concat_def(), at_call(ts, where), ConcatOptions{axis});
}

Tensor stack(const std::vector<TensorArg>& ts, int64_t axis, std::source_location where) {
  require(!ts.empty(), "stack: requires at least one tensor, got none");
  const int along = normalize_axis(axis, ts[0]->rank() + 1, "stack");
  std::vector<TensorArg> parts;
  for (size_t i = 0; i < ts.size(); ++i) {
    require(ts[i]->shape() == ts[0]->shape(),
            "stack: tensor {} must have the shape of tensor 0, {}, got {}", i,
            to_string(ts[0]->shape()), to_string(ts[i]->shape()));
    parts.emplace_back(unsqueeze({ts[i].tensor, where}, along), where);
  }
  return concat(parts, along, where);
}

Tensor tile(TensorArg t, const std::vector<int64_t>& counts) {
  const auto rank = static_cast<int>(counts.size());
  const int lead = rank - t->rank();
  require(lead >= 0, "tile: {} needs {} counts, got {}", to_string(t->shape()), t->rank(), rank);
  // Each axis gets another one before it, along which it is repeated.
  std::vector<int64_t> apart, repeated, merged;
  for (int a = 0; a < rank; ++a) {
    const int64_t count = at(counts, a);
    require(count >= 0, "tile: count {} must not be negative, got {}", a, count);
    const int64_t dim = a < lead ? 1 : t->shape()[a - lead];
    apart.insert(apart.end(), {1, dim});
    repeated.insert(repeated.end(), {count, dim});
    merged.push_back(checked_mul(count, dim));
  }
  const Tensor view = reshape(t, Shape(apart));
  return reshape({broadcast_to({view, t.where}, Shape(repeated)), t.where}, Shape(merged));
}

Tensor roll(TensorArg t, const std::vector<int64_t>& shifts, const std::vector<int64_t>& axes) {
  if (axes.empty()) {
    require(shifts.size() == 1, "roll: without axes, there must be 1 shift, got {}", shifts.size());
    return reshape({roll({flatten(t), t.where}, shifts, {0}), t.where}, t->shape());
  }
  require(shifts.size() == axes.size(), "roll: there must be a shift for each of {} axes, got {}",
          axes.size(), shifts.size());
  TensorArg y = t;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = normalize_axis(axes[i], t->rank(), "roll");
    const int64_t size = t->shape()[axis];
    if (size == 0) continue;
    const int64_t cut = size - (shifts[i] % size + size) % size;
    if (cut == size) continue;
    const TensorArg last{slice(y, {cut}, {}, {}, {axis}), t.where};
    y = {concat({last, {slice(y, {}, {cut}, {}, {axis}), t.where}}, axis, t.where), t.where};
  }
  return y.tensor;
}

namespace {

/// The elements to add along an axis: those before t, or those after it.
Tensor padding(const TensorArg& t, int axis, int64_t width, bool before, PadMode mode,
               double value) {
  const int64_t size = t->shape()[axis];
  const auto part = [&](std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step) {
    return slice(t, {start}, {stop}, {step}, {axis});
  };
  Shape shape = t->shape();
  shape[axis] = width;
  const int64_t most = mode == PadMode::kReflect                ? size - 1
                       : mode == PadMode::kCircular             ? size
                       : mode == PadMode::kConstant || size > 0 ? width
                                                                : 0;
  require(width <= most,
          "pad: axis {} has {} elements, so at most {} can be added to an end, got {}", axis, size,
          std::max<int64_t>(0, most), width);
  switch (mode) {
    case PadMode::kConstant:
      return broadcast_to(scalar_arg(value, t), shape);
    case PadMode::kReplicate: {
      const int64_t edge = before ? 0 : size - 1;
      return broadcast_to({part(edge, edge + 1, 1), t.where}, shape);
    }
    case PadMode::kCircular:
      return before ? part(size - width, std::nullopt, 1) : part(std::nullopt, width, 1);
    default: {
      if (before) return part(width, 0, -1);
      const int64_t stop = size - 2 - width;
      return part(size - 2, stop < 0 ? std::nullopt : std::optional(stop), -1);
    }
  }
}

}  // namespace

Tensor pad(TensorArg t, const std::vector<PadWidth>& widths, PadMode mode, double value) {
  require(std::ssize(widths) == t->rank(), "pad: {} needs {} widths, got {}", to_string(t->shape()),
          t->rank(), widths.size());
  // The added elements are those of the whole axis, except with kCircular: it repeats the rest.
  const bool crops_first = mode == PadMode::kConstant || mode == PadMode::kCircular;
  Tensor y = t.tensor;
  for (int axis = 0; axis < y.rank(); ++axis) {
    const PadWidth& w = at(widths, axis);
    const int64_t size = y.shape()[axis];
    const PadWidth added{std::max<int64_t>(0, w.before), std::max<int64_t>(0, w.after)};
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    const PadWidth removed{-std::clamp<int64_t>(w.before, -kMax, 0),
                           -std::clamp<int64_t>(w.after, -kMax, 0)};
    const bool crops = removed.before > 0 || removed.after > 0;
    const int64_t most =
        crops_first || !crops ? size : checked_add(size, std::max(added.before, added.after));
    require(removed.before <= most && removed.after <= most - removed.before,
            "pad: axis {} has {} elements, fewer than are to be removed: {} before and {} after",
            axis, size, w.before, w.after);
    const auto crop = [&] {
      if (!crops) return;
      const int64_t end = y.shape()[axis] - removed.after;
      y = slice({y, t.where}, {removed.before}, {end}, {}, {axis});
    };
    if (crops_first) crop();
    std::vector<TensorArg> parts{{y, t.where}};
    const TensorArg inside = parts[0];
    if (added.before > 0)
      parts.insert(parts.begin(),
                   {padding(inside, axis, added.before, true, mode, value), t.where});
    if (added.after > 0)
      parts.emplace_back(padding(inside, axis, added.after, false, mode, value), t.where);
    if (parts.size() > 1) y = concat(parts, axis, t.where);
    if (!crops_first) crop();
  }
  return y;
}

Tensor concat_(const std::vector<TensorArg>& ts, int64_t axis, std::source_location where) {
  const Tensor view = emit_one(concat_in_place_def(), at_call(ts, where), ConcatOptions{axis});
  const int along = normalize_axis(axis, view.rank(), "concat_");
  Tensors sources;
  for (const TensorArg& t : ts) sources.push_back(t.tensor);
  const auto refresh = [=] {
    update_slice_(view, concat({sources.begin(), sources.end()}, along));
  };
  const auto write_back = [=] {
    int64_t start = 0;
    for (const Tensor& source : sources) {
      const int64_t end = start + source.shape()[along];
      update_slice_(source, slice(view, {start}, {end}, {}, {along}));
      start = end;
    }
  };
  view.graph().keep_in_step(
      {.view = view, .sources = sources, .refresh = refresh, .write_back = write_back});
  return view;
}

namespace {

/// Returns ", for example with sizes {3, 2, 2}" for 7 elements in 3 parts, as numpy.array_split
/// cuts them. Returns an empty text where this is not possible or too long.
std::string unequal_sizes(int64_t length, int64_t parts) {
  if (parts < 1 || parts > length || parts > 8) return "";
  std::string sizes;
  for (int64_t i = 0; i < parts; ++i) {
    sizes += fmt::format("{}{}", i == 0 ? "" : ", ", length / parts + (i < length % parts));
  }
  return fmt::format(", for example with sizes {{{}}}", sizes);
}

}  // namespace

Tensors split(TensorArg t, int64_t parts, int64_t axis) {
  const int64_t length = t->shape()[normalize_axis(axis, t->rank(), "split")];
  require(parts >= 1 && length % parts == 0,
          "split: parts must be positive and divide axis {} of {}, got {}; for parts of different "
          "sizes call split(t, sizes, axis){}",
          axis, to_string(t->shape()), parts, unequal_sizes(length, parts));
  return split(t, std::vector<int64_t>(static_cast<size_t>(parts), length / parts), axis);
}

Tensors split(TensorArg t, const std::vector<int64_t>& sizes, int64_t axis) {
  return emit(split_def(), {t}, to_attrs(SplitOptions{.sizes = sizes, .axis = axis}));
}

std::vector<const OpDef*> concat_ops() {
  return {&concat_def(), &concat_in_place_def(), &split_def()};
}

}  // namespace sluice::ops
