#include "sluice/ops/arithmetic.h"

#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

std::vector<TensorSpec> infer_add_n(const OpView& op) {
  require_float(op.input(0), "add_n (C1): x");
  for (int i = 1; i < op.inputs(); ++i) {
    require(op.input(i).shape == op.input(0).shape && op.input(i).dtype == op.input(0).dtype,
            "add_n (C2): operand {} must be {} like operand 0, got {}", i, to_string(op.input(0)),
            to_string(op.input(i)));
  }
  return {op.input(0)};
}

Tensors grad_add_n(GradContext& g) {
  Tensors result;
  for (int i = 0; i < g.op().inputs(); ++i) result.push_back(g.grad(0));
  return result;
}

template <typename T>
void reference_add_n(const KernelArgs& k) {
  const auto y = k.out<T>(0);
  for (size_t e = 0; e < y.size(); ++e) {
    T sum = k.in<T>(0)[e];
    for (int i = 1; i < k.op().inputs(); ++i) sum += k.in<T>(i)[e];
    y[e] = sum;
  }
}

}  // namespace

const OpDef& add_n_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Sum";
    d.name = "add_n";
    d.doc =
        "y = x + xs[0] + xs[1] + …, added from the left. (C1) x is floating point of a dtype that "
        "devices have. "
        "(C2) All operands have the same shape and dtype.";
    d.inputs = {{"x"}, {"xs"}};
    d.variadic = true;
    d.outputs = {"y"};
    d.traits = kElementwise;
    d.may_coincide = {{0, 0}};
    d.infer = infer_add_n;
    d.grad = grad_add_n;
    d.reference_float = reference_add_n<float>;
    d.reference_double = reference_add_n<double>;
    d.flops = [](const OpView& op) {
      return static_cast<double>(op.output(0).elements()) * (op.inputs() - 1);
    };
    const auto sample = [](const Shape& shape, DType dtype, size_t n) {
      return Sample{.inputs = std::vector<TensorSpec>(n, TensorSpec{shape, dtype, {}}),
                    .gradient = dtype == f32};
    };
    d.samples = {sample({}, f32, 1),     sample({3, 5}, f32, 2), sample({7}, f32, 4),
                 sample({0, 2}, f32, 3), sample({17}, f16, 3),   sample({17}, bf16, 3)};
    d.must_fail = {{"(C1)", {i32_spec({2}), i32_spec({2})}, {}},
                   {"(C2)", {f32_spec({2}), f32_spec({1})}, {}},
                   {"(C2)", {f32_spec({2}), {Shape{2}, f16, {}}}, {}}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> add_n_ops() { return {&add_n_def()}; }

Tensor add_n(const std::vector<TensorArg>& ts, std::source_location where) {
  return emit_one(add_n_def(), at_call(ts, where));
}

}  // namespace sluice::ops
