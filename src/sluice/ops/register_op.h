#pragma once
#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "sluice/ops/hyper_rules.h"
#include "sluice/ops/op.h"

namespace sluice::ops {

/// Adds an operator of a program to those of the library, for the rest of the process. The result
/// is its definition, for emit() and emit_one(). The operator is then a full one: programs, plans
/// as text, the checker, autodiff, strategies and the interpreter treat it like any other. It runs
/// its `map` in fused chains, its `host_kernel` in parallel, or its reference. A plan that names
/// it runs only in programs that register it.
///
/// Error{kUsage} if the type is taken or not an identifier, a rule or a reference is absent, an
/// index of `aliases` or `may_coincide` is out of range, the operator is a collective or built into
/// the IR, the shape rule refuses a sample, or it accepts an entry of must_fail. check_operator()
/// (interp/check_operator.h) also compares values and gradients on the samples.
///
/// Threads may call it concurrently. Register an operator before programs that use it are built or
/// loaded.
const OpDef& register_op(OpDef def);

namespace internal {

/// Calls the formula with the hyperparameters before the elements, if it has this form.
template <typename Formula, typename T, typename... More>
T compute(const double* hypers, T x, More... more) {
  if constexpr (std::is_invocable_v<Formula, const double*, T, More...>)
    return static_cast<T>(Formula{}(hypers, x, more...));
  else
    return static_cast<T>(Formula{}(x, more...));
}

template <typename Formula, size_t... I>
void map_formula(const void* functor, const MapInput* inputs, const MapOutput* outputs,
                 int64_t rows, int64_t n) {
  constexpr int64_t kLanes = 16;  // Loops of a constant length become vector instructions.
  const auto* const hypers = static_cast<const double*>(functor);
  for (int64_t row = 0; row < rows; ++row) {
    const float* const data[] = {(inputs[I].data + row * inputs[I].row_step)...};
    float* const result = outputs[0].data + row * outputs[0].row_step;
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t count = n - i < kLanes ? n - i : kLanes;
      float x[sizeof...(I)][kLanes] = {};
      float y[kLanes];
      const auto load = [&](const float* from, int64_t step, float* to) {
        for (int64_t j = 0; j < count; ++j) to[j] = from[(i + j) * step];
      };
      (load(data[I], inputs[I].step, x[I]), ...);
      for (int64_t j = 0; j < kLanes; ++j) y[j] = compute<Formula>(hypers, x[I][j]...);
      for (int64_t j = 0; j < count; ++j) result[i + j] = y[j];
    }
  }
}

template <typename T, typename Formula, size_t... I>
void reference_formula(const KernelArgs& k) {
  std::vector<double> hypers = hyper_values<T>(k);
  hypers.resize(
      std::max<size_t>(hypers.size(), kMaxMapHypers));  // A map reads as many, zeros at the end.
  const T* const x[] = {k.in<T>(static_cast<int>(I)).data()...};
  const BroadcastIndex at[] = {BroadcastIndex(k.in_shape(static_cast<int>(I)), k.out_shape(0))...};
  const auto y = k.out<T>(0);
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = compute<Formula>(hypers.data(), x[I][at[I](static_cast<int64_t>(i))]...);
}

/// Adds shape rule, documentation of constraints, samples and must_fail to an elementwise operator.
OpDef complete_elementwise(OpDef def);

template <typename Formula, size_t... I>
OpDef elementwise_with(std::index_sequence<I...>) {
  OpDef d;
  d.reference_float = reference_formula<float, Formula, I...>;
  d.reference_double = reference_formula<double, Formula, I...>;
  d.map = map_formula<Formula, I...>;
  return d;
}

}  // namespace internal

/// Returns the definition of an elementwise operator on floating-point operands of one dtype, whose
/// shapes broadcast:
///
///     elementwise_op<2>("Hypot", "hypot", {"a", "b"}, "The length of (a, b).", gradient,
///                       [](auto a, auto b) { using std::sqrt; return sqrt(a * a + b * b); })
///
/// `formula` has no captures and is a template over float and double; with float it defines the
/// bits. With hyperparameters, which are options of type double (OpDef::options), its first
/// argument is `const double* hypers`, the values of at most 8 in that order. It must be defined
/// for operands of 0, with which a kernel fills the last vector. The caller may change every field
/// of the result, such as the samples, whose operands are between -2 and 2 by default. Compile it
/// without contraction (-ffp-contract=off) where the processor fuses multiplications and additions:
/// otherwise the kernel may have other bits than the reference.
template <int inputs, typename Formula>
OpDef elementwise_op(std::string type, std::string name, std::vector<std::string> operands,
                     std::string doc, GradFn gradient, Formula) {
  static_assert(inputs >= 1 && inputs <= kMaxMapInputs, "a formula has 1 to 6 operands");
  static_assert(std::is_empty_v<Formula>, "a formula must not capture variables");
  OpDef d = internal::elementwise_with<Formula>(std::make_index_sequence<inputs>{});
  require(operands.size() == inputs, "{}: {} names of operands are required, got {}", name, inputs,
          operands.size());
  d.type = std::move(type);
  d.name = std::move(name);
  d.doc = std::move(doc);
  for (std::string& operand : operands) d.inputs.push_back({std::move(operand)});
  d.grad = gradient;
  return internal::complete_elementwise(std::move(d));
}

}  // namespace sluice::ops
