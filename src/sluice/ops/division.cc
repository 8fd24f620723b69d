#include "sluice/ops/arithmetic.h"

#include <cmath>

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/division_functors.h"
#include "sluice/ops/elementwise.h"
#include "sluice/ops/integer_functors.h"
#include "sluice/ops/unary.h"

namespace sluice::ops {
namespace {

using namespace elementwise;  // NOLINT

constexpr auto kFmod = []<typename E>(E a, E b) -> E {
  if constexpr (std::is_integral_v<E>)
    return integer::Fmod{}(a, b);
  else
    return std::fmod(a, b);
};
constexpr auto kRemainder = []<typename E>(E a, E b) -> E {
  if constexpr (std::is_integral_v<E>) {
    return integer::Remainder{}(a, b);
  } else {
    const E rest = std::fmod(a, b);
    if (rest == 0) return std::copysign(rest, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
  }
};

/// With r = a - b·n for a whole n: dr/da = 1, dr/db = -n. A rounded a / b could give another n.
Tensors grad_rest(GradContext& g) {
  if (!is_float(g.op().input(0).dtype)) return Tensors(2);
  Tensors grads(2);
  if (g.needs(0)) grads[0] = reduce_to(g.grad(0), g.op().input(0).shape);
  if (g.needs(1)) {
    const Tensor n = round((g.input(0) - g.output(0)) / g.input(1));
    grads[1] = reduce_to(-(g.grad(0) * n), g.op().input(1).shape);
  }
  return grads;
}

template <typename Functor, auto formula>
OpDef rest(const char* name, const char* doc) {
  OpDef d = define<Functor, formula, 2, Integers::kTaken>(name, doc, {"lhs", "rhs"},
                                                          infer_arithmetic, grad_rest);
  d.doc +=
      " (C1) Numbers of a dtype that devices have; an integer divided by 0 has the remainder 0. "
      "(C2) Both of one dtype, the result's. (C3) Shapes broadcast.";
  d.flops_per_element = 10;
  d.samples = binary_samples({0.5, 2});
  for (Sample& s : d.samples) s.gradient = false;  // Not continuous.
  for (const DType dtype : {i32, u32, u8})
    d.samples.push_back(integer_sample(dtype, {{3, 7}, {7}}));
  const std::vector<float> lhs{5, -5, 5, -5, 1e30f, 0.3f, -0.0f, 4, HUGE_VALF, 1, 1, -1, 1e-40f};
  const std::vector<float> rhs{3, 3, -3, -3, 0.7f, 0.1f, 3, 2, 1, 0, HUGE_VALF, HUGE_VALF, 1};
  d.samples.push_back({.inputs = {f32_spec({13}), f32_spec({13})}, .gradient = false});
  d.samples.back().values = {HostTensor::of<float>({13}, f32, lhs),
                             HostTensor::of<float>({13}, f32, rhs)};
  d.samples.push_back({.inputs = {f32_spec({4}), f32_spec({4})}});
  d.samples.back().values = {HostTensor::of<float>({4}, f32, {5, -5, 7.5, -7.5}),
                             HostTensor::of<float>({4}, f32, {3, 3, -2, -2})};
  d.must_fail = {{"(C1)", {{Shape{2}, boolean, {}}, {Shape{2}, boolean, {}}}, {}},
                 {"(C2)", {f32_spec({2}), {Shape{2}, f16, {}}}, {}},
                 {"(C3)", {f32_spec({2}), f32_spec({3})}, {}}};
  return d;
}

const OpDef& fmod_def() {
  static const OpDef def =
      rest<functor::Fmod, kFmod>("fmod", "lhs - rhs·trunc(lhs / rhs), with the sign of lhs.");
  return def;
}
const OpDef& remainder_def() {
  static const OpDef def = rest<functor::Remainder, kRemainder>(
      "remainder", "lhs - rhs·floor(lhs / rhs), with the sign of rhs.");
  return def;
}

}  // namespace

std::vector<const OpDef*> division_ops() { return {&fmod_def(), &remainder_def()}; }

Tensor fmod(TensorArg lhs, TensorArg rhs) { return emit_one(fmod_def(), {lhs, rhs}); }
Tensor fmod(TensorArg lhs, double rhs) { return fmod(lhs, scalar_arg(rhs, lhs)); }
Tensor remainder(TensorArg lhs, TensorArg rhs) { return emit_one(remainder_def(), {lhs, rhs}); }
Tensor remainder(TensorArg lhs, double rhs) { return remainder(lhs, scalar_arg(rhs, lhs)); }

}  // namespace sluice::ops
