#pragma once
#include <array>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sluice/cpu/simd/unit.h"
#include "sluice/cpu/simd/vector_kernels.h"

/// The definition of map_on (vector_kernels.h). Included by .isa.cc files only.
namespace sluice::cpu::internal {

template <typename V>
void store_results(V result, float* const* outputs, int64_t i, int64_t count) {
  if (count >= V::kLanes)
    result.store(outputs[0] + i);
  else
    result.store_partial(outputs[0] + i, count);
}
template <typename V, size_t kOutputs>
void store_results(const std::array<V, kOutputs>& results, float* const* outputs, int64_t i,
                   int64_t count) {
  for (size_t o = 0; o < kOutputs; ++o) store_results(results[o], outputs + o, i, count);
}

template <typename T>
constexpr size_t kOutputsOf = 1;
template <typename V, size_t kOutputs>
constexpr size_t kOutputsOf<std::array<V, kOutputs>> = kOutputs;

/// A functor with its operands: rows of arrays or single values.
template <typename V, typename F, typename Sequence>
struct MapRows;
template <typename V, typename F, size_t... kInput>
struct MapRows<V, F, std::index_sequence<kInput...>> {
  static constexpr size_t kInputs = sizeof...(kInput);
  static constexpr size_t kOutputs =
      kOutputsOf<decltype(std::declval<F>()((static_cast<void>(kInput), V(0.0f))...))>;

  MapRows(const void* functor, const MapInput* from, const MapOutput* to)
      : f(*static_cast<const F*>(functor)), inputs(from), outputs(to) {
    for (size_t i = 0; i < kInputs; ++i) data[i] = inputs[i].data;
    for (size_t o = 0; o < kOutputs; ++o) out[o] = outputs[o].data;
  }

  void next_row() {
    for (size_t i = 0; i < kInputs; ++i) data[i] += inputs[i].row_step;
    for (size_t o = 0; o < kOutputs; ++o) out[o] += outputs[o].row_step;
  }
  bool has_arrays_only() const { return (... && (inputs[kInput].step != 0)); }

  /// Computes whole vectors; all inputs are arrays.
  void run_arrays(int64_t n) const {
    for (int64_t i = 0; i < n; i += V::kLanes) {
      if constexpr (requires { F::kPrefetched; })
        (__builtin_prefetch(data[kInput] + i + F::kPrefetched), ...);
      store_results(f(V::load(data[kInput] + i)...), out, i, V::kLanes);
    }
  }
  /// Computes whole vectors. A single value is loaded from a vector of it.
  void run_mixed(int64_t n) const {
    alignas(64) float values[kInputs][V::kLanes];
    const float* from[kInputs];
    int64_t mask[kInputs];  // All indices of an array; index 0 of a single value.
    for (size_t i = 0; i < kInputs; ++i) {
      mask[i] = inputs[i].step != 0 ? -1 : 0;
      from[i] = data[i];
      if (inputs[i].step != 0) continue;
      V(*data[i]).store(values[i]);
      from[i] = values[i];
    }
    for (int64_t i = 0; i < n; i += V::kLanes)
      store_results(f(V::load(from[kInput] + (i & mask[kInput]))...), out, i, V::kLanes);
  }
  /// Computes the elements [begin, n), which are fewer than the lanes.
  void run_tail(int64_t begin, int64_t n) const {
    const auto load = [&](size_t i) {
      return inputs[i].step != 0 ? V::load_partial(data[i] + begin, n - begin) : V(*data[i]);
    };
    store_results(f(load(kInput)...), out, begin, n - begin);
  }

  const F f;  // A copy, so that the compiler knows that no store changes it.
  const MapInput* inputs;
  const MapOutput* outputs;
  const float* data[kInputs];
  float* out[kOutputs];
};

template <Isa kIsa, typename F>
void map_on(const void* functor, const MapInput* inputs, const MapOutput* outputs, int64_t rows,
            int64_t n) {
  using V = typename VectorFor<kIsa>::type;
  using Rows = MapRows<V, F, std::make_index_sequence<inputs_of<F, V>()>>;
  if (n <= 0 || rows <= 0) return;
  Rows map(functor, inputs, outputs);
  const bool arrays = map.has_arrays_only();
  const int64_t tail = n % V::kLanes, whole = n - tail;
  for (int64_t row = 0;;) {
    if (arrays)
      map.run_arrays(whole);
    else if (whole > 0)
      map.run_mixed(whole);
    if (tail > 0) map.run_tail(whole, n);
    if (++row >= rows) return;
    map.next_row();
  }
}

/// Instantiates the kernels of the functors in a std::tuple.
template <Isa kIsa, typename List>
struct MapKernels;
template <Isa kIsa, typename... F>
struct MapKernels<kIsa, std::tuple<F...>> {
  static constexpr MapFn kKernels[] = {map_on<kIsa, F>...};
};

}  // namespace sluice::cpu::internal

/// Instantiates map_kernel<functor> for the instruction set of this file.
#define SLUICE_MAP_KERNEL(...)                                                         \
  template void ::sluice::cpu::internal::map_on<::sluice::cpu::kUnitIsa, __VA_ARGS__>( \
      const void*, const ::sluice::MapInput*, const ::sluice::MapOutput*, int64_t, int64_t);

/// Instantiates map_kernel for every functor of a std::tuple, for the instruction set of this file.
#define SLUICE_MAP_KERNELS(...) \
  template struct ::sluice::cpu::internal::MapKernels<::sluice::cpu::kUnitIsa, __VA_ARGS__>;
