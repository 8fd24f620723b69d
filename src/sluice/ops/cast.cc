#include "sluice/ops/cast.h"

#include <cmath>
#include <limits>

#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

template <typename To, typename From>
To convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From{};
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    constexpr auto lowest = static_cast<double>(std::numeric_limits<To>::lowest());
    constexpr auto highest = static_cast<double>(std::numeric_limits<To>::max());
    const auto value = static_cast<double>(x);
    if (std::isnan(value)) return 0;
    if (value <= lowest) return std::numeric_limits<To>::lowest();
    if (value >= highest) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(x);
  }
}

template <typename T>
void reference_cast(const KernelArgs& k) {
  visit_element<T>(k.in_dtype(0), [&]<typename From>(From) {
    visit_element<T>(k.out_dtype(0), [&]<typename To>(To) {
      const auto x = k.in<From>(0);
      const auto y = k.out<To>(0);
      for (size_t i = 0; i < y.size(); ++i) y[i] = convert<To>(x[i]);
    });
  });
}

std::vector<TensorSpec> infer_cast(const OpView& op) {
  require_device_dtype(op.input(0), "cast (C1): x");
  TensorSpec y = op.input(0);
  y.dtype = op.options<CastOptions>().dtype;
  require_device_dtype(y, "cast (C2): the result");
  return {y};
}

Tensors grad_cast(GradContext& g) {
  const OpView op = g.op();
  if (!is_float(op.input(0).dtype) || !is_float(op.output(0).dtype)) return {Tensor()};
  return {cast(g.grad(0), op.input(0).dtype)};
}

}  // namespace

const OpDef& cast_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Cast";
    d.index_rule = IndexRule::kSame;
    d.name = "cast";
    d.doc =
        "x in another dtype. (C1) x has a dtype that devices have. (C2) So has the result. "
        "Gradients flow between "
        "floating-point dtypes only.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.set_options(CastOptions{});
    d.traits = kElementwise;
    d.infer = infer_cast;
    d.grad = grad_cast;
    d.reference_float = reference_cast<float>;
    d.reference_double = reference_cast<double>;
    d.flops_per_element = 0;
    for (const DType from : {f32, f16, i32, u8, boolean}) {
      for (const DType to : {f32, bf16, i32, u32, u8, boolean}) {
        Sample s{.inputs = {{Shape{3, 5}, from, {}}}, .options = to_attrs(CastOptions{to})};
        s.gradient = is_float(from) && is_float(to);
        if (to == u32 || to == u8) s.domain = {0, 100};
        d.samples.push_back(s);
      }
    }
    d.samples.push_back({.inputs = {f32_spec({})}, .options = to_attrs(CastOptions{f16})});
    d.samples.push_back({.inputs = {f32_spec({0, 2})}, .options = to_attrs(CastOptions{f16})});
    Sample limits{
        .inputs = {f32_spec({6})}, .options = to_attrs(CastOptions{i32}), .gradient = false};
    limits.values = {HostTensor::of<float>(
        {6}, f32, {std::numeric_limits<float>::quiet_NaN(), 1e20f, -1e20f, -2.7f, 2.7f, -0.0f})};
    d.samples.push_back(limits);
    d.must_fail = {{"(C1)", {{Shape{2}, f64, {}}}, {}},
                   {"(C2)", {f32_spec({2})}, to_attrs(CastOptions{i64})}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> cast_ops() { return {&cast_def()}; }

Tensor cast(TensorArg x, DType dtype) {
  if (x->dtype() == dtype) return x;
  return emit_one(cast_def(), {x}, CastOptions{dtype});
}

}  // namespace sluice::ops
