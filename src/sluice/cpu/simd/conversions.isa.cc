#include "sluice/cpu/simd/conversions.h"

#include "sluice/cpu/simd/stored_elements.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;

template <typename T>
void widen(const std::byte* from, float* to, int64_t n) {
  const T* const p = reinterpret_cast<const T*>(from);
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) load_elements<V>(p + i).store(to + i);
  if (i < n) load_elements_partial<V>(p + i, n - i).store_partial(to + i, n - i);
}

template <typename T>
void narrow(const float* from, std::byte* to, int64_t n) {
  T* const p = reinterpret_cast<T*>(to);
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) store_elements(V::load(from + i), p + i);
  if (i < n) store_elements_partial(V::load_partial(from + i, n - i), p + i, n - i);
}

template <typename T>
V rounded(V v) {
  T elements[V::kLanes];
  store_elements(v, elements);
  return load_elements<V>(elements);
}

template <typename T>
void round(const float* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) rounded<T>(V::load(from + i)).store(to + i);
  if (i < n) rounded<T>(V::load_partial(from + i, n - i)).store_partial(to + i, n - i);
}

template <typename T>
constexpr ConversionKernels of = {widen<T>, narrow<T>, round<T>};

}  // namespace

template <>
const ConversionKernels ConversionTable<kUnitIsa>::kByDType[] = {
    of<float>, of<Half>, of<Bfloat>, of<int32_t>, of<uint32_t>, of<uint8_t>, of<Truth>};

}  // namespace sluice::cpu::internal
