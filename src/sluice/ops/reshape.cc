#include "sluice/ops/reshape.h"

#include <algorithm>
#include <set>

#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

std::vector<TensorSpec> infer_reshape(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const Shape shape = op.options<ShapeOptions>().shape;
  const std::string& name = op.def().name;
  require_device_dtype(x, name + " (C1): x");
  for (const int64_t d : shape) {
    require(d >= 0, "{} (C2): dimensions must not be negative, got {} in {}", name, d,
            to_string(shape));
  }
  require(shape.elements() == x.elements(),
          "{} (C3): shape must have {} elements as {} has, got {} with {}", name, x.elements(),
          to_string(x.shape), to_string(shape), shape.elements());
  return {{shape, x.dtype, {}}};
}

Tensors grad_reshape(GradContext& g) { return {reshape(g.grad(0), g.op().input(0).shape)}; }

template <typename T>
void copy(const KernelArgs& k) {
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const auto x = k.in<E>(0);
    const auto y = k.out<E>(0);
    if (x.data() != y.data()) std::copy(x.begin(), x.end(), y.begin());
  });
}

OpDef reshape_like(const char* type, const char* name, const char* doc) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = std::string(doc) +
          " (C1) x has a device dtype. (C2) No dimension is negative. (C3) As many elements as x.";
  d.inputs = {{"x"}};
  d.outputs = {"y"};
  d.set_options(ShapeOptions{});
  d.traits = Trait::kView;
  d.may_coincide = {{0, 0}};
  d.infer = infer_reshape;
  d.grad = grad_reshape;
  d.reference_float = copy<float>;
  d.reference_double = copy<double>;
  const auto to = [](Shape shape) { return to_attrs(ShapeOptions{std::move(shape)}); };
  d.samples = {{.inputs = {f32_spec({2, 6})}, .options = to({3, 4})},
               {.inputs = {f32_spec({})}, .options = to({1, 1})},
               {.inputs = {i32_spec({5})}, .options = to({5, 1}), .gradient = false},
               {.inputs = {f32_spec({0, 3})}, .options = to({7, 0}), .gradient = false}};
  d.must_fail = {{"(C1)", {{{4}, f64, {}}}, to({2, 2})},
                 {"(C2)", {f32_spec({4})}, to({-2, -2})},
                 {"(C3)", {f32_spec({4})}, to({3})}};
  return d;
}

std::vector<TensorSpec> infer_broadcast(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const Shape shape = op.options<ShapeOptions>().shape;
  require_device_dtype(x, "broadcast_to (C1): x");
  const int lead = shape.rank() - x.shape.rank();
  bool fits = lead >= 0;
  for (int a = 0; fits && a < shape.rank(); ++a) {
    fits = shape[a] >= 0 && (a < lead || x.shape[a - lead] == shape[a] || x.shape[a - lead] == 1);
  }
  require(fits, "broadcast_to (C2): {} does not broadcast to {}", to_string(x.shape),
          to_string(shape));
  return {{shape, x.dtype, {}}};
}

Tensors grad_broadcast(GradContext& g) { return {reduce_to(g.grad(0), g.op().input(0).shape)}; }

template <typename T>
void reference_broadcast(const KernelArgs& k) {
  const BroadcastIndex from(k.in_shape(0), k.out_shape(0));
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const E* const x = k.in<E>(0).data();
    int64_t i = 0;
    for (E& y : k.out<E>(0)) y = x[from(i++)];
  });
}

/// Returns `shape` with its -1, if any, replaced by the inferred dimension.
Shape resolve(const Tensor& t, Shape shape) {
  int unknown = -1;
  int64_t known = 1;
  for (int a = 0; a < shape.rank(); ++a) {
    require(shape[a] >= -1, "reshape: dimension {} of {} is below -1", shape[a], to_string(shape));
    if (shape[a] == -1) {
      require(unknown < 0, "reshape: more than one dimension of {} is -1", to_string(shape));
      unknown = a;
    } else {
      known *= shape[a];
    }
  }
  if (unknown < 0) return shape;
  require(known > 0 && t.elements() % known == 0,
          "reshape: the dimensions of {} except -1 must divide the {} elements of {}",
          to_string(shape), t.elements(), to_string(t.shape()));
  shape[unknown] = t.elements() / known;
  return shape;
}

Shape squeezed(const Tensor& t, const std::vector<int64_t>& axes) {
  std::set<int> drop;
  for (const int64_t axis : axes) {
    const int a = normalize_axis(axis, t.rank(), "squeeze");
    require(drop.insert(a).second, "squeeze: axis {} is given twice", axis);
    require(t.shape()[a] == 1, "squeeze: axis {} of {} is not of size 1", axis,
            to_string(t.shape()));
  }
  std::vector<int64_t> dims;
  for (int a = 0; a < t.rank(); ++a) {
    if (!drop.contains(a)) dims.push_back(t.shape()[a]);
  }
  return Shape(std::move(dims));
}

}  // namespace

const OpDef& reshape_def() {
  static const OpDef def =
      reshape_like("Reshape", "reshape", "The elements of x in row-major order as another shape.");
  return def;
}

const OpDef& reshape_inplace_def() {
  static const OpDef def = [] {
    OpDef d = reshape_like("ReshapeInplace", "reshape_", "x's own storage under another shape.");
    d.aliases = {{0, 0}};
    return d;
  }();
  return def;
}

const OpDef& broadcast_to_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Expand";
    d.name = "broadcast_to";
    d.doc =
        "x repeated along the axes where it has size 1 or none, as numpy.broadcast_to. (C1) x has "
        "a device dtype. (C2) x's shape broadcasts to the shape of the options.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.set_options(ShapeOptions{});
    d.infer = infer_broadcast;
    d.grad = grad_broadcast;
    d.reference_float = reference_broadcast<float>;
    d.reference_double = reference_broadcast<double>;
    const auto to = [](Shape shape) { return to_attrs(ShapeOptions{std::move(shape)}); };
    d.samples = {{.inputs = {f32_spec({})}, .options = to({3, 5})},
                 {.inputs = {f32_spec({4, 1, 3})}, .options = to({2, 4, 7, 3})},
                 {.inputs = {f32_spec({3})}, .options = to({3})},
                 {.inputs = {i32_spec({1})}, .options = to({0}), .gradient = false}};
    d.must_fail = {{"(C1)", {{{1}, i64, {}}}, to({2})},
                   {"(C2)", {f32_spec({3})}, to({3, 4})},
                   {"(C2)", {f32_spec({1, 3})}, to({3})}};
    return d;
  }();
  return def;
}

Tensor reshape(TensorArg t, const Shape& shape) {
  return emit_one(reshape_def(), {t}, ShapeOptions{resolve(t, shape)});
}
Tensor reshape_(TensorArg t, const Shape& shape) {
  return emit_one(reshape_inplace_def(), {t}, ShapeOptions{resolve(t, shape)});
}
Tensor flatten(TensorArg t) { return reshape(t, {t->elements()}); }

Tensor flatten(TensorArg t, int64_t start, int64_t end) {
  const Shape& shape = t->shape();
  const int rank = std::max(1, shape.rank());
  const int first = normalize_axis(start, rank, "flatten: start");
  const int last = normalize_axis(end, rank, "flatten: end");
  require(first <= last, "flatten: start must not exceed end, got axes {} and {} of {}", start, end,
          to_string(shape));
  std::vector<int64_t> dims(shape.begin(), shape.begin() + std::min(first, shape.rank()));
  dims.push_back(1);
  for (int a = first; a <= std::min(last, shape.rank() - 1); ++a) dims.back() *= shape[a];
  for (int a = last + 1; a < shape.rank(); ++a) dims.push_back(shape[a]);
  return reshape(t, Shape(std::move(dims)));
}

Tensor unsqueeze(TensorArg t, int64_t axis) { return unsqueeze(t, std::vector<int64_t>{axis}); }

Tensor unsqueeze(TensorArg t, const std::vector<int64_t>& axes) {
  const int rank = t->rank() + static_cast<int>(axes.size());
  std::set<int> added;
  for (const int64_t axis : axes)
    require(added.insert(normalize_axis(axis, rank, "unsqueeze")).second,
            "unsqueeze: axis {} is given twice", axis);
  std::vector<int64_t> dims;
  int next = 0;
  for (int a = 0; a < rank; ++a) dims.push_back(added.contains(a) ? 1 : t->shape()[next++]);
  return reshape(t, Shape(std::move(dims)));
}

Tensor flatten_(TensorArg t) { return reshape_(t, {t->elements()}); }

Tensor squeeze(TensorArg t) {
  std::vector<int64_t> axes;
  for (int a = 0; a < t->rank(); ++a) {
    if (t->shape()[a] == 1) axes.push_back(a);
  }
  return reshape(t, squeezed(t, axes));
}
Tensor squeeze(TensorArg t, const std::vector<int64_t>& axes) {
  return reshape(t, squeezed(t, axes));
}

Tensor broadcast_to(TensorArg t, const Shape& shape) {
  return t->shape() == shape ? t.tensor : emit_one(broadcast_to_def(), {t}, ShapeOptions{shape});
}

Tensor expand(TensorArg t, const Shape& shape) {
  Shape wanted = shape;
  const int lead = shape.rank() - t->rank();
  for (int a = 0; a < shape.rank(); ++a) {
    if (shape[a] != -1) continue;
    require(a >= lead, "expand: -1 on axis {} of {} requires an axis of {}; give the size", a,
            to_string(shape), to_string(t->shape()));
    if (lead >= 0) wanted[a] = t->shape()[a - lead];
  }
  return broadcast_to(t, wanted);
}

std::vector<const OpDef*> reshape_ops() {
  return {&reshape_def(), &reshape_inplace_def(), &broadcast_to_def()};
}

}  // namespace sluice::ops
