#include "sluice/ops/extended.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sluice/base/numbers/extended_range.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/elementwise.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

constexpr auto kAddExtended = [](double a, double b) {
  return to_extended(from_extended(a) + from_extended(b));
};
constexpr auto kSqrtExtended = [](double x) {
  const double root = std::sqrt(from_extended(x));
  return x < 0 ? std::min(root, static_cast<double>(std::numeric_limits<float>::max())) : root;
};

// Other dtypes cannot hold the extended range.
std::vector<TensorSpec> infer_extended(const OpView& op) {
  for (int i = 0; i < op.inputs(); ++i)
    require(op.input(i).dtype == f32, "{} (C1): operands must be float32, got {}", op.def().name,
            to_string(op.input(i)));
  return elementwise::infer_float(op);
}

std::vector<Sample> f32_samples(std::vector<Sample> samples) {
  std::erase_if(samples, [](const Sample& s) { return s.inputs[0].dtype != f32; });
  return samples;
}

Tensors add_extended_grad(GradContext& g) {
  Tensors grads;
  for (int i = 0; i < 2; ++i)
    grads.push_back(g.needs(i) ? reduce_to(g.grad(0), g.op().input(i).shape) : Tensor{});
  return grads;
}

Tensors sqrt_extended_grad(GradContext& g) {
  const Tensor y = g.output(0);
  return {div(g.grad(0), add(y, y))};
}

}  // namespace

const OpDef& add_extended_def() {
  static const OpDef def = [] {
    OpDef d = elementwise::define<functor::AddExtended, kAddExtended, 2>(
        "add_extended",
        "a + b of sums of squares in extended range: x < 0 stands for -x·2^160. (C1) float32. "
        "(C3) Shapes broadcast.",
        {"a", "b"}, infer_extended, add_extended_grad);
    d.samples = f32_samples(elementwise::binary_samples({0.1, 2}));
    d.must_fail = {{"(C1)", {i32_spec({2}), i32_spec({2})}, {}},
                   {"(C1)", {f32_spec({2}), {Shape{2}, f16, {}}}, {}},
                   {"(C3)", {f32_spec({2}), f32_spec({3})}, {}}};
    return d;
  }();
  return def;
}

const OpDef& sqrt_extended_def() {
  static const OpDef def = [] {
    OpDef d = elementwise::define<functor::SqrtExtended, kSqrtExtended, 1>(
        "sqrt_extended",
        "The square root of a sum of squares in extended range: x < 0 stands for -x·2^160. The "
        "root of a finite x is at most the largest float32. (C1) float32.",
        {"x"}, infer_extended, sqrt_extended_grad);
    d.samples = f32_samples(elementwise::unary_samples({0.1, 2}));
    d.must_fail = {{"(C1)", {i32_spec({2})}, {}}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> extended_ops() { return {&add_extended_def(), &sqrt_extended_def()}; }

Tensor add_extended(TensorArg a, TensorArg b) { return emit_one(add_extended_def(), {a, b}); }
Tensor sqrt_extended(TensorArg x) { return emit_one(sqrt_extended_def(), {x}); }

}  // namespace sluice::ops
