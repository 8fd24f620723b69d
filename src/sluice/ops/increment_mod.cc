#include "sluice/ops/arithmetic.h"

#include <cmath>

#include "sluice/ops/elementwise.h"

namespace sluice::ops {
namespace {

using namespace elementwise;  // NOLINT

std::vector<TensorSpec> infer_increment_mod(const OpView& op) {
  std::vector<TensorSpec> y = infer_arithmetic(op);
  const auto o = op.options<IncrementModOptions>();
  const std::string& name = op.def().name;
  require(o.modulus > 0 && std::isfinite(o.modulus),
          "{} (C2): modulus must be greater than 0, got {}", name, o.modulus);
  if (!is_float(y[0].dtype)) {
    constexpr double kLimit = 4294967296.0;
    require(o.increment == std::trunc(o.increment) && std::fabs(o.increment) <= kLimit,
            "{} (C3): increment must be a whole number of at most 2^32 in magnitude, got {}", name,
            o.increment);
    require(can_store(y[0].dtype, o.modulus - 1),
            "{} (C3): modulus - 1 must be {} to be {}, got {}; cast t first", name,
            taken_by(y[0].dtype), name_of(y[0].dtype), o.modulus - 1);
  }
  return y;
}

template <typename T>
void reference_increment_mod(const KernelArgs& k) {
  const auto o = k.options<IncrementModOptions>();
  visit_element<T>(k.out_dtype(0), [&]<typename E>(E) {
    if constexpr (std::is_integral_v<E>) {
      const auto increment = static_cast<int64_t>(o.increment);
      const auto modulus = static_cast<int64_t>(o.modulus);
      map<1, E, E>(k, [&](E t) {
        const int64_t rest = (static_cast<int64_t>(t) + increment) % modulus;
        return rest < 0 ? rest + modulus : rest;
      });
    } else {
      const auto increment = static_cast<E>(o.increment);
      const auto modulus = static_cast<E>(o.modulus);
      map<1, E, E>(k, [&](E t) {
        const E rest = std::fmod(t + increment, modulus);  // Exact: the same bits everywhere.
        if (!(rest < 0)) return rest;                      // NaN stays NaN.
        return rest + modulus < modulus ? rest + modulus : E{0};
      });
    }
  });
}

const OpDef& increment_mod_in_place_def() {
  static const OpDef def = in_place(increment_mod_def(), "IncrementModInplace", "increment_mod_");
  return def;
}

}  // namespace

const OpDef& increment_mod_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "IncrementMod";
    d.index_rule = IndexRule::kIncrementMod;
    d.name = "increment_mod";
    d.doc =
        "(t + increment) mod modulus, not negative; NaN for NaN and infinities. (C1) t is a number "
        "of a dtype that devices have. (C2) modulus is greater than 0. (C3) For integers, both are "
        "whole, increment is at most 2^32 in magnitude, and t's dtype holds modulus - 1.";
    d.inputs = {{"t"}};
    d.outputs = {"y"};
    d.set_options(IncrementModOptions{});
    d.traits = kElementwise | kZeroGradient;
    d.may_coincide = {{0, 0}};
    d.infer = infer_increment_mod;
    d.reference_float = reference_increment_mod<float>;
    d.reference_double = reference_increment_mod<double>;
    d.flops_per_element = 2;
    for (const DType dtype : {i32, u32, u8}) {
      d.samples.push_back(integer_sample(dtype, {{17}}));
      d.samples.back().options = to_attrs(IncrementModOptions{3, 7});
      d.samples.push_back(integer_sample(dtype, {{}}));
      d.samples.back().options = to_attrs(IncrementModOptions{-1, 2});
    }
    Sample floats{.inputs = {f32_spec({4})},
                  .options = to_attrs(IncrementModOptions{1, 2.5}),
                  .gradient = false};
    floats.values = {HostTensor::of<float>({4}, f32, {0.25f, -2.0f, 2.25f, 100.75f})};
    d.samples.push_back(floats);
    d.must_fail = {{"(C1)", {{Shape{2}, boolean, {}}}, d.options},
                   {"(C2)", {i32_spec({2})}, to_attrs(IncrementModOptions{1, 0})},
                   {"(C3)", {i32_spec({2})}, to_attrs(IncrementModOptions{0.5, 2})},
                   {"(C3)", {i32_spec({2})}, to_attrs(IncrementModOptions{1, 2.5})},
                   {"(C3)", {{Shape{2}, u8, {}}}, to_attrs(IncrementModOptions{1, 257})}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> increment_mod_ops() {
  return {&increment_mod_def(), &increment_mod_in_place_def()};
}

Tensor increment_mod(TensorArg t, double increment, double modulus) {
  return emit_one(increment_mod_def(), {t}, IncrementModOptions{increment, modulus});
}
Tensor increment_mod_(TensorArg t, double increment, double modulus) {
  return emit_one(increment_mod_in_place_def(), {t}, IncrementModOptions{increment, modulus});
}

}  // namespace sluice::ops
