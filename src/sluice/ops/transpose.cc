#include "sluice/ops/transpose.h"

#include "sluice/ops/indexing.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

std::vector<TensorSpec> infer(const OpView& op) {
  const TensorSpec& x = op.input(0);
  require_device_dtype(x, "transpose (C1): x");
  const auto permutation = op.options<TransposeOptions>().permutation;
  bool valid = static_cast<int>(permutation.size()) == x.shape.rank();
  std::vector<bool> seen(permutation.size());
  for (size_t i = 0; valid && i < permutation.size(); ++i) {
    const int64_t axis = permutation[i];
    valid = axis >= 0 && axis < x.shape.rank() && !seen[static_cast<size_t>(axis)];
    if (valid) seen[static_cast<size_t>(axis)] = true;
  }
  require(valid, "transpose (C2): {} is not a permutation of the axes of {}",
          to_string(Shape(permutation)), to_string(x.shape));
  std::vector<int64_t> dims;
  for (const int64_t axis : permutation) dims.push_back(x.shape[static_cast<int>(axis)]);
  return {{Shape(std::move(dims)), x.dtype, {}}};
}

Tensors grad(GradContext& g) {
  const auto permutation = g.options<TransposeOptions>().permutation;
  std::vector<int64_t> inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) {
    inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  }
  return {transpose(g.grad(0), inverse)};
}

template <typename T>
void reference(const KernelArgs& k) {
  const auto strides = k.in_shape(0).strides();
  std::vector<int64_t> moved;
  for (const int64_t axis : k.options<TransposeOptions>().permutation) {
    moved.push_back(strides[static_cast<size_t>(axis)]);
  }
  const StridedIndex from(k.out_shape(0).dims(), moved);
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const auto x = k.in<E>(0);
    const auto y = k.out<E>(0);
    for (size_t i = 0; i < y.size(); ++i)
      y[i] = x[static_cast<size_t>(from(static_cast<int64_t>(i)))];
  });
}

}  // namespace

const OpDef& transpose_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Transpose";
    d.name = "transpose";
    d.doc =
        "x with its axes permuted: axis i of the result is axis permutation[i] of x. (C1) x has a "
        "device dtype. (C2) "
        "The permutation names each axis of x once.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.options = to_attrs(TransposeOptions{});
    d.infer = infer;
    d.grad = grad;
    d.reference_float = reference<float>;
    d.reference_double = reference<double>;
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
  }();
  return def;
}

Tensor transpose(TensorArg t) {
  std::vector<int64_t> reversed;
  for (int a = t->rank() - 1; a >= 0; --a) reversed.push_back(a);
  return emit_one(transpose_def(), {t}, TransposeOptions{std::move(reversed)});
}

Tensor transpose(TensorArg t, const std::vector<int64_t>& permutation) {
  std::vector<int64_t> axes;
  for (const int64_t axis : permutation)
    axes.push_back(normalize_axis(axis, t->rank(), "transpose"));
  return emit_one(transpose_def(), {t}, TransposeOptions{std::move(axes)});
}

std::vector<const OpDef*> transpose_ops() { return {&transpose_def()}; }

}  // namespace sluice::ops
