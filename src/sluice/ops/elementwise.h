#pragma once
#include <array>
#include <utility>

#include "sluice/ops/functors.h"
#include "sluice/ops/hyper_rules.h"
#include "sluice/ops/hypers.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {

/// Helpers that the elementwise families share: kernels from a functor and a formula, shape rules,
/// samples.

namespace elementwise {

/// Computes y[i] = f(x0[i], …, xN-1[i]) over the first N operands, each broadcast to the shape of
/// the output. Operands have elements of type In, the output of type Out. The output may have the
/// address of an operand of its shape.
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

/// Makes the functor of an op, from the hyperparameters of the op if the functor takes any.
template <typename T, typename Functor>
Functor make_functor(const KernelArgs& k) {
  if constexpr (requires(const double* h) { Functor::make(h); }) {
    return Functor::make(hyper_values<T>(k).data());
  } else {
    return Functor{};
  }
}

/// Whether a reference kernel supports integers.
enum class Integers { kRefused, kTaken };

/// A reference kernel. In float it runs the functor, one lane wide. In double it runs
/// `formula(x…)`, or `formula(h, x…)` if the functor has hyperparameters `const double* h`. With
/// Integers::kTaken, integers run `formula` too.
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

/// Shape rule: operands have one dtype (C2) that devices have (C1), and their shapes broadcast
/// (C3). The result has that dtype.
std::vector<TensorSpec> infer_numeric(const OpView& op);
/// infer_numeric, where (C1) also refuses bool.
std::vector<TensorSpec> infer_arithmetic(const OpView& op);
/// infer_numeric, where (C1) also refuses bool and integers.
std::vector<TensorSpec> infer_float(const OpView& op);
/// Returns the spec of broadcasting all operands, or the first `count`. The result keeps the
/// meta_shape of the first shard that has its shape. Error{kUsage} citing (C3) if the shapes do not
/// broadcast.
TensorSpec broadcast_operands(const OpView& op, int count = -1);
/// Requires that all operands have the dtype of the first; Error{kUsage} citing (C2) otherwise.
void require_one_dtype(const OpView& op);

/// Returns a definition with the kernels, rules and traits of an elementwise operator. The caller
/// adds the rest, such as samples.
template <typename Functor, auto formula, int N, Integers integers = Integers::kRefused>
OpDef define(const char* name, const char* doc, std::array<const char*, N> inputs, InferFn infer,
             GradFn grad) {
  OpDef d;
  d.type = Functor::kType;
  d.name = name;
  d.doc = doc;
  for (const char* input : inputs) d.inputs.push_back(InputDef{input});
  for (int i = 0; i < N; ++i) d.may_coincide.emplace_back(i, 0);
  d.outputs = {"y"};
  d.traits = kElementwise;
  d.infer = infer;
  d.grad = grad;
  d.reference_float = reference<float, N, Functor, formula, integers>;
  d.reference_double = reference<double, N, Functor, formula, integers>;
  d.flops_per_element = 1;
  return d;
}

/// The formula of an op on floating-point operands, whose last operand g is a gradient: the op's
/// result for g = 1, which does not depend differentiably on the other operands, times g.
Tensors times_gradient(const OpView& op, const Tensors& inputs);

/// Returns the in-place form of `base`: the result overwrites the first operand and must have its
/// shape (C4).
OpDef in_place(const OpDef& base, const char* type, const char* name);

/// Returns the `kType` of the functor that an operator type uses. An in-place form uses the functor
/// of its plain form: "Add" for "AddLhsInplace".
std::string_view functor_type(std::string_view type);

/// Samples for operators of one or two operands, with all the shapes that matter. Values are drawn
/// from `domain`.
std::vector<Sample> unary_samples(std::pair<double, double> domain);
std::vector<Sample> binary_samples(std::pair<double, double> domain);
/// binary_samples with equal shapes only, which the operands of gradient operators have.
std::vector<Sample> pair_samples(std::pair<double, double> domain);
/// A sample whose operands are integers or bools of the given shapes.
Sample integer_sample(DType dtype, const std::vector<Shape>& shapes);

}  // namespace elementwise
}  // namespace sluice::ops
