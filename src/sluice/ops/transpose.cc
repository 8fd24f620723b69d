#include "sluice/ops/transpose.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sluice/ops/indexing.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/slice.h"

namespace sluice::ops {
namespace {

std::vector<TensorSpec> infer_transpose(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const std::string& name = op.def().name;
  require_device_dtype(x, name + " (C1): x");
  const auto permutation = op.options<TransposeOptions>().permutation;
  std::vector<int64_t> axes(x.shape.dims().size());
  std::iota(axes.begin(), axes.end(), 0);
  require(std::is_permutation(permutation.begin(), permutation.end(), axes.begin(), axes.end()),
          "{} (C2): permutation must name each axis of {} once, got {}", name, to_string(x.shape),
          to_string(Shape(permutation)));
  std::vector<int64_t> dims;
  for (const int64_t axis : permutation) dims.push_back(x.shape[static_cast<int>(axis)]);
  return {{Shape(std::move(dims)), x.dtype, {}}};
}

std::vector<int64_t> inverse(const std::vector<int64_t>& permutation) {
  std::vector<int64_t> result(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i)
    at(result, permutation[i]) = static_cast<int64_t>(i);
  return result;
}

Tensors grad_transpose(GradContext& g) {
  return {transpose(g.grad(0), inverse(g.options<TransposeOptions>().permutation))};
}

template <typename T>
void reference_transpose(const KernelArgs& k) {
  const auto strides = k.in_shape(0).strides();
  std::vector<int64_t> moved;
  for (const int64_t axis : k.options<TransposeOptions>().permutation) {
    moved.push_back(at(strides, axis));
  }
  const StridedIndex from(k.out_shape(0).dims(), moved);
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const E* const x = k.in<E>(0).data();
    int64_t i = 0;
    for (E& y : k.out<E>(0)) y = x[from(i++)];
  });
}

OpDef transpose_like(const char* type, const char* name, const char* doc) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = std::string(doc) +
          " (C1) x has a device dtype. (C2) The permutation names each axis of x once.";
  d.inputs = {{"x"}};
  d.outputs = {"y"};
  d.set_options(TransposeOptions{});
  d.infer = infer_transpose;
  d.grad = grad_transpose;
  d.reference_float = reference_transpose<float>;
  d.reference_double = reference_transpose<double>;
  const auto by = [](std::vector<int64_t> permutation) {
    return to_attrs(TransposeOptions{std::move(permutation)});
  };
  d.samples = {{.inputs = {f32_spec({3, 5})}, .options = by({1, 0})},
               {.inputs = {f32_spec({2, 3, 4, 5})}, .options = by({2, 0, 3, 1})},
               {.inputs = {f32_spec({})}},
               {.inputs = {{{2, 3}, boolean, {}}}, .options = by({1, 0}), .gradient = false},
               {.inputs = {f32_spec({0, 4})}, .options = by({1, 0}), .gradient = false}};
  d.must_fail = {{"(C1)", {{{2, 3}, f64, {}}}, by({1, 0})},
                 {"(C2)", {f32_spec({2, 3})}, by({0})},
                 {"(C2)", {f32_spec({2, 3})}, by({1, 1})},
                 {"(C2)", {f32_spec({2, 3})}, by({0, 2})}};
  return d;
}

std::vector<int64_t> reversed_axes(const Tensor& t) {
  std::vector<int64_t> axes;
  for (int a = t.rank() - 1; a >= 0; --a) axes.push_back(a);
  return axes;
}

std::vector<int64_t> normalized(const Tensor& t, const std::vector<int64_t>& permutation) {
  std::vector<int64_t> axes;
  for (const int64_t axis : permutation)
    axes.push_back(normalize_axis(axis, t.rank(), "transpose"));
  return axes;
}

}  // namespace

const OpDef& transpose_def() {
  static const OpDef def =
      transpose_like("Transpose", "transpose",
                     "x with its axes permuted: axis i of the result is axis permutation[i] of x.");
  return def;
}

const OpDef& transpose_in_place_def() {
  static const OpDef def = transpose_like("TransposeInplace", "transpose_",
                                          "transpose as a view that is kept in step with x.");
  return def;
}

Tensor transpose(TensorArg t) { return transpose(t, reversed_axes(t)); }

Tensor transpose(TensorArg t, const std::vector<int64_t>& permutation) {
  return emit_one(transpose_def(), {t}, TransposeOptions{normalized(t, permutation)});
}

Tensor swap_axes(TensorArg t, int64_t a, int64_t b) {
  std::vector<int64_t> axes = reversed_axes(t);
  std::reverse(axes.begin(), axes.end());
  std::iter_swap(axes.begin() + normalize_axis(a, t->rank(), "swap_axes"),
                 axes.begin() + normalize_axis(b, t->rank(), "swap_axes"));
  return transpose(t, axes);
}

Tensor transpose_(TensorArg t) { return transpose_(t, reversed_axes(t)); }

Tensor transpose_(TensorArg t, const std::vector<int64_t>& permutation) {
  const std::vector<int64_t> axes = normalized(t, permutation);
  const Tensor view = emit_one(transpose_in_place_def(), {t}, TransposeOptions{axes});
  const Tensor source = t.tensor;
  source.graph().keep_in_step(
      {.view = view,
       .sources = {source},
       .refresh = [=] { update_slice_(view, transpose(source, axes)); },
       .write_back = [=] { update_slice_(source, transpose(view, inverse(axes))); }});
  return view;
}

std::vector<const OpDef*> transpose_ops() { return {&transpose_def(), &transpose_in_place_def()}; }

}  // namespace sluice::ops
