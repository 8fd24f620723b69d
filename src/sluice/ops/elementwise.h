#pragma once
#include <array>
#include <utility>

#include "sluice/ops/functors.h"
#include "sluice/ops/hypers.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {

/// What the elementwise families share: kernels from a functor and a formula, shape rules, samples.

namespace elementwise {

/// y[i] = f(x0[i], …, xN-1[i]) over the first N operands, each broadcast to the output's shape.
/// Elements are of type In and Out. `y` may be the bytes of an operand of the output's shape.
template <int N, typename In, typename Out, typename F>
void map(const KernelArgs& k, const F& f) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    const std::array<const In*, N> x{k.in<In>(static_cast<int>(I)).data()...};
    const std::array<BroadcastIndex, N> at{
        BroadcastIndex(k.in_shape(static_cast<int>(I)), k.out_shape(0))...};
    const auto y = k.out<Out>(0);
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = static_cast<Out>(f(x[I][at[I](static_cast<int64_t>(i))]...));
    }
  }
  (std::make_index_sequence<N>{});
}

/// The functor of an op: with its hyperparameters if it has any.
template <typename T, typename Functor>
Functor make_functor(const KernelArgs& k) {
  if constexpr (requires(const double* h) { Functor::make(h); }) {
    return Functor::make(hyper_values<T>(k).data());
  } else {
    return Functor{};
  }
}

/// A reference kernel: in float the functor, one lane wide; in double `formula(x…)`, or `formula(h,
/// x…)` with the hyperparameters as `const double* h`. Where `integers` is set, integers take
/// `formula` too.
enum class Integers { kRefused, kTaken };

template <typename T, int N, typename Functor, auto formula, Integers integers = Integers::kRefused>
void reference(const KernelArgs& k) {
  if constexpr (integers == Integers::kTaken) {
    if (!is_float(k.out_dtype(0))) {
      visit_element<T>(k.out_dtype(0), [&]<typename E>(E) {
        if constexpr (std::is_integral_v<E>) map<N, E, E>(k, formula);
      });
      return;
    }
  }
  if constexpr (std::is_same_v<T, float>) {
    const Functor functor = make_functor<T, Functor>(k);
    map<N, float, float>(k, [&](auto... x) { return functor(simd::F1(x)...).v; });
  } else if constexpr (requires(const double* h) { Functor::make(h); }) {
    const std::vector<double> h = hyper_values<T>(k);
    map<N, double, double>(k, [&](auto... x) { return formula(h.data(), x...); });
  } else {
    map<N, double, double>(k, formula);
  }
}

/// Shape rules: operands of one dtype (C2) that devices have (C1), broadcast (C3); the result has
/// that dtype.
std::vector<TensorSpec> infer_numeric(const OpView& op);
/// The same; (C1) also refuses bool.
std::vector<TensorSpec> infer_arithmetic(const OpView& op);
/// The same; (C1) also refuses bool and integers.
std::vector<TensorSpec> infer_float(const OpView& op);
/// The result of broadcasting all operands (or the first `count`), citing (C3). A shard of full
/// shape `meta_shape` stays one.
TensorSpec broadcast_operands(const OpView& op, int count = -1);
/// All operands have the first one's dtype, citing (C2).
void require_one_dtype(const OpView& op);

/// A definition with its kernels and traits set; the rest is the caller's.
template <typename Functor, auto formula, int N, Integers integers = Integers::kRefused>
OpDef define(const char* name, const char* doc, std::array<const char*, N> inputs, InferFn infer,
             GradFn grad) {
  OpDef d;
  d.type = Functor::kType;
  d.name = name;
  d.doc = doc;
  for (int i = 0; i < N; ++i) {
    d.inputs.push_back(InputDef{inputs[static_cast<size_t>(i)]});
    d.may_coincide.emplace_back(i, 0);
  }
  d.outputs = {"y"};
  d.traits = kElementwise;
  d.infer = infer;
  d.grad = grad;
  d.reference_float = reference<float, N, Functor, formula, integers>;
  d.reference_double = reference<double, N, Functor, formula, integers>;
  d.flops_per_element = 1;
  return d;
}

/// The in-place form of an elementwise definition: the result overwrites the first operand, whose
/// shape it must have (C4).
OpDef in_place(const OpDef& base, const char* type, const char* name);

/// The `kType` of the functor of an operator's type: in-place forms have the plain one's, "Add" for
/// "AddLhsInplace".
std::string_view functor_type(std::string_view type);

/// Samples for operators of one and two operands, over all the shapes that matter; floats are drawn
/// from `domain`.
std::vector<Sample> unary_samples(std::pair<double, double> domain);
std::vector<Sample> binary_samples(std::pair<double, double> domain);
/// The same with only equal shapes, as gradient operators have them.
std::vector<Sample> pair_samples(std::pair<double, double> domain);
/// A sample of integers or bools of these shapes.
Sample integer_sample(DType dtype, const std::vector<Shape>& shapes);

}  // namespace elementwise
}  // namespace sluice::ops
