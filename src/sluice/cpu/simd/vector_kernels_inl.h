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

/// The loop over all vectors. `kArrays`: every input is an array along a row.
template <typename V, bool kArrays, typename F, size_t... kInput>
void map_loop(const F& f, const MapInput* inputs, const MapOutput* outputs, int64_t rows, int64_t n,
              std::index_sequence<kInput...>) {
  constexpr size_t kOutputs = kOutputsOf<decltype(f((static_cast<void>(kInput), V(0.0f))...))>;
  const bool array[] = {inputs[kInput].step != 0 ...};
  for (int64_t row = 0; row < rows; ++row) {
    const float* const data[] = {(inputs[kInput].data + row * inputs[kInput].row_step)...};
    const V value[] = {kArrays || array[kInput] ? V(0.0f) : V(*data[kInput])...};
    float* out[kOutputs];
    for (size_t o = 0; o < kOutputs; ++o) out[o] = outputs[o].data + row * outputs[o].row_step;
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes) {
      store_results(f((kArrays || array[kInput] ? V::load(data[kInput] + i) : value[kInput])...),
                    out, i, V::kLanes);
    }
    if (i < n) {
      store_results(f((kArrays || array[kInput] ? V::load_partial(data[kInput] + i, n - i)
                                                : value[kInput])...),
                    out, i, n - i);
    }
  }
}

template <Isa kIsa, typename F>
void map_on(const void* functor, const MapInput* inputs, const MapOutput* outputs, int64_t rows,
            int64_t n) {
  using V = typename VectorFor<kIsa>::type;
  if (n <= 0) return;
  constexpr int kInputs = inputs_of<F, V>();
  // Copy the functor, so that the compiler knows that no store changes it.
  const F f = *static_cast<const F*>(functor);
  bool arrays = true;
  for (int i = 0; i < kInputs; ++i) arrays = arrays && inputs[i].step != 0;
  constexpr auto sequence = std::make_index_sequence<kInputs>{};
  if (arrays)
    map_loop<V, true>(f, inputs, outputs, rows, n, sequence);
  else
    map_loop<V, false>(f, inputs, outputs, rows, n, sequence);
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
