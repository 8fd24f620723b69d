#pragma once
#include <cstdint>
#include <type_traits>

#include "sluice/base/map_kernel.h"
#include "sluice/cpu/simd/isa.h"

/// Elementwise kernels for every instruction set, generated from functors.
///
/// A functor is a struct whose fields are its parameters. It has a call operator over the vector
/// type (base/simd.h), `template <typename V> V operator()(V a, V b) const`, for 1 to 6 inputs.
/// Several outputs are returned as `std::array<V, kOutputs>`. The functor with one lane defines the
/// bits; the kernels compute the same bits with every instruction set, for every length.
///
/// To add a functor: include its header and vector_kernels_inl.h in a file x.isa.cc that
/// sluice_isa_sources() lists, and write `SLUICE_MAP_KERNEL(sluice::ops::functor::Gelu)` outside
/// namespaces. SLUICE_MAP_KERNELS takes a std::tuple of functors. Then any file of this layer may
/// call `map_kernel<ops::functor::Gelu>(isa)`. Without the macro, the linker reports an undefined
/// symbol that names the functor.
namespace sluice::cpu {

namespace internal {
/// Returns the number of inputs of a functor.
template <typename F, typename V>
constexpr int inputs_of() {
  if constexpr (std::is_invocable_v<const F&, V>)
    return 1;
  else if constexpr (std::is_invocable_v<const F&, V, V>)
    return 2;
  else if constexpr (std::is_invocable_v<const F&, V, V, V>)
    return 3;
  else if constexpr (std::is_invocable_v<const F&, V, V, V, V>)
    return 4;
  else if constexpr (std::is_invocable_v<const F&, V, V, V, V, V>)
    return 5;
  else {
    static_assert(std::is_invocable_v<const F&, V, V, V, V, V, V>,
                  "a functor must take 1 to 6 vectors");
    return 6;
  }
}

template <Isa kIsa, typename F>
void map_on(const void* functor, const MapInput* inputs, const MapOutput* outputs, int64_t rows,
            int64_t n);
}  // namespace internal

/// Returns the kernel of functor type F for an instruction set.
template <typename F>
MapFn map_kernel(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return internal::map_on<Isa::kAvx512, F>;
  if (isa == Isa::kAvx2) return internal::map_on<Isa::kAvx2, F>;
#endif
  return internal::map_on<Isa::kBase, F>;
}

/// Computes y[i] = f(x[i]) for i < n.
template <typename F>
void map1(const F& f, const float* x, float* y, int64_t n, Isa isa = current_isa()) {
  const MapInput inputs[] = {{x}};
  const MapOutput output{y};
  map_kernel<F>(isa)(&f, inputs, &output, 1, n);
}

/// Computes y[i] = f(a[i], b[i]) for i < n. `MapInput{p, 0}` broadcasts *p.
template <typename F>
void map2(const F& f, MapInput a, MapInput b, float* y, int64_t n, Isa isa = current_isa()) {
  const MapInput inputs[] = {a, b};
  const MapOutput output{y};
  map_kernel<F>(isa)(&f, inputs, &output, 1, n);
}

/// Computes y[i] = f(a[i], b[i], c[i]) for i < n.
template <typename F>
void map3(const F& f, MapInput a, MapInput b, MapInput c, float* y, int64_t n,
          Isa isa = current_isa()) {
  const MapInput inputs[] = {a, b, c};
  const MapOutput output{y};
  map_kernel<F>(isa)(&f, inputs, &output, 1, n);
}

}  // namespace sluice::cpu
