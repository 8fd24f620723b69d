#pragma once
#include "sluice/cpu/simd/unit.h"

/// Loads, stores and separates parts of vectors. Included by .isa.cc files only.
namespace sluice::cpu {

/// Load and store min(n, V::kLanes) elements; other lanes are 0. n may be negative.
template <simd::Vector V>
[[gnu::always_inline]] inline V load_some(const float* p, int64_t n) {
  return n >= V::kLanes ? V::load(p) : V::load_partial(p, n);
}
template <simd::Vector V>
[[gnu::always_inline]] inline void store_some(V v, float* p, int64_t n) {
  if (n >= V::kLanes)
    v.store(p);
  else
    v.store_partial(p, n);
}

/// Separates the elements with even numbers in (a, b) from those with odd numbers.
template <simd::Vector V>
[[gnu::always_inline]] inline void split_pairs(V a, V b, V& even, V& odd) {
  if constexpr (V::kLanes == 1) {
    even = a;
    odd = b;
  }
#if SLUICE_UNIT_ISA == 1
  const auto in_order = [](__m256 v) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
  };
  even = in_order(_mm256_shuffle_ps(a.v, b.v, 0x88));
  odd = in_order(_mm256_shuffle_ps(a.v, b.v, 0xdd));
#elif SLUICE_UNIT_ISA == 2
  const __m512i evens =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  even = _mm512_permutex2var_ps(a.v, evens, b.v);
  odd = _mm512_permutex2var_ps(a.v, _mm512_or_si512(evens, _mm512_set1_epi32(1)), b.v);
#endif
}

/// Reverses split_pairs().
template <simd::Vector V>
[[gnu::always_inline]] inline void join_pairs(V even, V odd, V& a, V& b) {
  if constexpr (V::kLanes == 1) {
    a = even;
    b = odd;
  }
#if SLUICE_UNIT_ISA == 1
  const __m256 low = _mm256_unpacklo_ps(even.v, odd.v);
  const __m256 high = _mm256_unpackhi_ps(even.v, odd.v);
  a = _mm256_permute2f128_ps(low, high, 0x20);
  b = _mm256_permute2f128_ps(low, high, 0x31);
#elif SLUICE_UNIT_ISA == 2
  const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  a = _mm512_permutex2var_ps(even.v, first, odd.v);
  b = _mm512_permutex2var_ps(even.v, _mm512_add_epi32(first, _mm512_set1_epi32(8)), odd.v);
#endif
}

/// Load and store min(n, 2·V::kLanes) elements, split into those with even and odd numbers.
template <simd::Vector V>
[[gnu::always_inline]] inline void load_pairs(const float* p, int64_t n, V& even, V& odd) {
  split_pairs(load_some<V>(p, n), load_some<V>(p + V::kLanes, n - V::kLanes), even, odd);
}
template <simd::Vector V>
[[gnu::always_inline]] inline void store_pairs(V even, V odd, float* p, int64_t n) {
  V a, b;
  join_pairs(even, odd, a, b);
  store_some(a, p, n);
  store_some(b, p + V::kLanes, n - V::kLanes);
}

}  // namespace sluice::cpu
