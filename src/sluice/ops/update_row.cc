#include "sluice/ops/slice.h"

#include <algorithm>

#include "sluice/ops/basic.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

std::vector<TensorSpec> infer_update_row(const OpView& op) {
  const TensorSpec& t = op.input(0);
  const TensorSpec& y = op.input(1);
  require_device_dtype(t, "update_row_ (C1): t");
  require(t.dtype == y.dtype, "update_row_ (C1): y must have the dtype of t, {}, got {}",
          name_of(t.dtype), to_string(y));
  require(!t.shape.empty(), "update_row_ (C2): t must have at least one axis, got {}",
          to_string(t));
  const Shape row = replace_axis(t.shape, 0, {});
  require(y.shape == row, "update_row_ (C3): y must have the shape of a row of t, {}, got {}",
          to_string(row), to_string(y));
  require_index(op.input(2), "update_row_ (C4): index");
  require(op.input(2).shape.empty(), "update_row_ (C4): index must be a scalar, got {}",
          to_string(op.input(2)));
  return {t};
}

// t has the gradient itself, with zeros in the row. y has the row of it.
Tensors grad_update_row(GradContext& g) {
  const Tensor index = g.input(2);
  Tensors result(3);
  if (g.needs(0)) {
    const Tensor zeros = init(g.graph(), g.op().input(1));
    result[0] = update_row_(identity(g.grad(0)), zeros, index);
  }
  if (g.needs(1)) result[1] = gather(g.grad(0), index, {.axis = 0, .zero_out_of_range = true});
  return result;
}

template <typename T>
void reference_update_row(const KernelArgs& k) {
  int64_t index = 0;  // Read in place: a step must not allocate memory.
  visit_element<float>(k.in_dtype(2),
                       [&]<typename E>(E) { index = static_cast<int64_t>(k.in<E>(2)[0]); });
  const AxisSplit s(k.out_shape(0), 0);
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const auto old = k.in<E>(0);
    E* const t = k.out<E>(0).data();
    if (old.data() != t) std::copy(old.begin(), old.end(), t);
    const auto y = k.in<E>(1);
    if (index >= 0 && index < s.extent) std::copy(y.begin(), y.end(), t + index * s.inner);
  });
}

Sample sample(const Shape& t, DType dtype, int32_t index) {
  return {.inputs = {{t, dtype, {}}, {replace_axis(t, 0, {}), dtype, {}}, i32_spec({})},
          .values = {std::nullopt, std::nullopt, HostTensor::of<int32_t>({}, i32, {index})},
          .gradient = is_float(dtype)};
}

}  // namespace

const OpDef& update_row_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "RowUpdateInplace";
    d.name = "update_row_";
    d.doc =
        "t with y in place of row index of its first axis, in t's storage; an index outside the "
        "axis writes nothing. (C1) t and y have one device dtype. (C2) t has an axis. (C3) y has "
        "the shape of t without its first axis. (C4) index is a scalar, int32 or uint32.";
    d.inputs = {{"t", Mode::kUpdate}, {"y"}, {"index"}};
    d.outputs = {"t"};
    d.aliases = {{0, 0}};
    d.may_coincide = {{0, 0}};
    d.infer = infer_update_row;
    d.grad = grad_update_row;
    d.reference_float = reference_update_row<float>;
    d.reference_double = reference_update_row<double>;
    d.samples = {sample({5, 3}, f32, 2), sample({4}, f32, 0),    sample({3, 2, 4}, f32, 2),
                 sample({3, 7}, f16, 1), sample({4, 2}, f32, 4), sample({4, 2}, f32, -1),
                 sample({3, 2}, i32, 1)};
    const TensorSpec t = f32_spec({5, 3});
    const TensorSpec y = f32_spec({3});
    const TensorSpec index = i32_spec({});
    d.must_fail = {{"(C1)", {t, i32_spec({3}), index}, {}},
                   {"(C1)", {{{5, 3}, f64, {}}, {{3}, f64, {}}, index}, {}},
                   {"(C2)", {f32_spec({}), f32_spec({}), index}, {}},
                   {"(C3)", {t, f32_spec({1, 3}), index}, {}},
                   {"(C4)", {t, y, f32_spec({})}, {}},
                   {"(C4)", {t, y, i32_spec({1})}, {}}};
    return d;
  }();
  return def;
}

Tensor update_row_(TensorArg t, TensorArg y, TensorArg index) {
  return emit_one(update_row_def(), {t, y, index});
}

std::vector<const OpDef*> update_row_ops() { return {&update_row_def()}; }

}  // namespace sluice::ops
