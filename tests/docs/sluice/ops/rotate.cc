#include "sluice/ops/rotate.h"

#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

std::vector<TensorSpec> infer(const OpView& op) {
  require_device_dtype(op.input(0), "rotate (C1): x");
  require(op.input(0).shape.rank() > 0, "rotate (C2): x must have an axis, got a scalar");
  return {TensorSpec{op.input(0).shape, op.input(0).dtype, {}}};
}

Tensors gradient(GradContext& g) {
  const auto o = g.options<RotateOptions>();
  return {rotate(g.grad(0), {.shift = -o.shift})};
}

template <typename T>
void reference(const KernelArgs& k) {
  const int64_t shift = k.options<RotateOptions>().shift;
  const int64_t n = k.in_shape(0).dim(-1);
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const auto x = k.in<E>(0);
    const auto y = k.out<E>(0);
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
      const int64_t row = i / n * n;
      const int64_t to = ((i - row + shift % n) % n + n) % n;
      y[static_cast<size_t>(row + to)] = x[static_cast<size_t>(i)];
    }
  });
}

}  // namespace

const OpDef& rotate_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Rotate";
    d.name = "rotate";
    d.doc =
        "Moves the elements of each row to the right, the last ones to the front. (C1) x has a "
        "dtype that devices have. (C2) x has at least one axis.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.options = to_attrs(RotateOptions{});
    d.infer = infer;
    d.grad = gradient;
    d.reference_float = reference<float>;
    d.reference_double = reference<double>;
    d.samples = {{.inputs = {f32_spec({7})}},
                 {.inputs = {f32_spec({2, 3})}, .options = to_attrs(RotateOptions{.shift = -4})},
                 {.inputs = {i32_spec({5})}, .options = to_attrs(RotateOptions{.shift = 12})},
                 {.inputs = {f32_spec({0})}}};
    d.must_fail = {{"(C1)", {TensorSpec{{2}, f64, {}}}, {}}, {"(C2)", {f32_spec({})}, {}}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> rotate_ops() { return {&rotate_def()}; }

Tensor rotate(TensorArg x, const RotateOptions& options) {
  return emit_one(rotate_def(), {x}, options);
}

}  // namespace sluice::ops
