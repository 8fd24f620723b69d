#pragma once
#include <cstring>

#include "sluice/cpu/pool/pool.h"
#include "sluice/cpu/simd/pairs.h"
#include "sluice/cpu/simd/stored_elements.h"

/// Vectors of the pool kernels. Included by .isa.cc files only.
namespace sluice::cpu {

/// Separates rows of n elements: in (a, b), they alternate between rows that go to `top` and rows
/// that go to `bottom`. join() reverses this.
template <simd::Vector V>
class RowPairs {
 public:
  static bool supports(int64_t n) {
#if SLUICE_UNIT_ISA == 1
    return n == 4;
#elif SLUICE_UNIT_ISA == 2
    return n < V::kLanes && (n & (n - 1)) == 0;
#else
    return n == 0;  // One lane has no two rows.
#endif
  }

#if SLUICE_UNIT_ISA == 2
  explicit RowPairs(int64_t n) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i size = _mm512_set1_epi32(static_cast<int32_t>(n));
    const __m512i whole = _mm512_set1_epi32(static_cast<int32_t>(-n));
    top_ = _mm512_add_epi32(lane, _mm512_and_si512(lane, whole));
    bottom_ = _mm512_add_epi32(top_, size);
    const __m512i row = _mm512_and_si512(_mm512_srli_epi32(lane, 1), whole);
    first_ = _mm512_add_epi32(row, _mm512_andnot_si512(whole, lane));
    first_ = _mm512_mask_add_epi32(first_, _mm512_test_epi32_mask(lane, size), first_,
                                   _mm512_set1_epi32(16));
    second_ = _mm512_add_epi32(first_, _mm512_set1_epi32(8));
  }
  void split(V a, V b, V& top, V& bottom) const {
    top = _mm512_permutex2var_ps(a.v, top_, b.v);
    bottom = _mm512_permutex2var_ps(a.v, bottom_, b.v);
  }
  void join(V top, V bottom, V& a, V& b) const {
    a = _mm512_permutex2var_ps(top.v, first_, bottom.v);
    b = _mm512_permutex2var_ps(top.v, second_, bottom.v);
  }

 private:
  __m512i top_, bottom_, first_, second_;
#else
  explicit RowPairs(int64_t) {}
  void split(V a, V b, V& top, V& bottom) const {
#if SLUICE_UNIT_ISA == 1
    top = _mm256_permute2f128_ps(a.v, b.v, 0x20);
    bottom = _mm256_permute2f128_ps(a.v, b.v, 0x31);
#else
    top = a;
    bottom = b;
#endif
  }
  void join(V top, V bottom, V& a, V& b) const { split(top, bottom, a, b); }
#endif
};

/// Whether windows of 2 x 2 cover whole planes and have few enough columns for RowPairs. A block of
/// V::kLanes results then has 4 vectors of contiguous elements.
template <simd::Vector V>
bool are_flat_quads(const PoolPlan& plan) {
  const ops::PoolAxis& height = plan.axes[1];
  const ops::PoolAxis& width = plan.axes[2];
  return height.x == 2 * height.y && width.x == 2 * width.y && RowPairs<V>::supports(width.y);
}

/// Load and store min(n, V::kLanes) taps, which are numbers up to 255. n is at least 1.
template <simd::Vector V>
[[gnu::always_inline]] inline V load_taps(const uint8_t* p, int64_t n) {
  if (n >= V::kLanes) return load_elements<V>(p);
#if SLUICE_UNIT_ISA == 1
  // Join bytes in a register. A vector cannot be loaded soon after its bytes were stored.
  uint64_t bytes;
  if (n >= 4) {
    uint32_t first, last;
    std::memcpy(&first, p, 4);
    std::memcpy(&last, p + n - 4, 4);
    bytes = first | static_cast<uint64_t>(last) << (8 * (n - 4));
  } else {
    bytes = p[0] | static_cast<uint64_t>(p[n / 2]) << (8 * (n / 2)) |
            static_cast<uint64_t>(p[n - 1]) << (8 * (n - 1));
  }
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes))));
#elif SLUICE_UNIT_ISA == 2
  const __m128i bytes = _mm_maskz_loadu_epi8(V::Mask::first(n).v, p);
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
#else
  return V(0.0f);
#endif
}
template <simd::Vector V>
[[gnu::always_inline]] inline void store_taps(V taps, uint8_t* p, int64_t n) {
  if (n >= V::kLanes) return to_int(taps).store(p);
#if SLUICE_UNIT_ISA == 1
  uint8_t bytes[8];
  to_int(taps).store(bytes);
  const uint8_t* from = bytes;
  if ((n & 4) != 0) {
    std::memcpy(p, from, 4);
    from += 4;
    p += 4;
  }
  if ((n & 2) != 0) {
    std::memcpy(p, from, 2);
    from += 2;
    p += 2;
  }
  if ((n & 1) != 0) *p = *from;
#elif SLUICE_UNIT_ISA == 2
  _mm512_mask_cvtepi32_storeu_epi8(p, V::Mask::first(n).v, to_int(taps).v);
#endif
}

/// Fills n elements.
template <simd::Vector V>
void fill(float* p, int64_t n, V value) {
  for (int64_t i = 0; i < n; i += V::kLanes) store_some(value, p + i, n - i);
}

/// Rows of operands that participate in a row of results, and for each the number of its first tap.
struct PoolRows {
  const float* row[PoolPlan::kMaxRows];
  float number[PoolPlan::kMaxRows];
  int64_t count;
};

/// Writes the number of positions that count along the width for each window of a row.
template <simd::Vector V>
void write_counts(const PoolPlan& plan, float* counts) {
  for (int64_t o = 0; o < plan.axes[2].y; ++o)
    counts[o] = static_cast<float>(plan.shape.count(2, o));
}

/// Returns the divisors of the averages of min(n, V::kLanes) windows. `rows` is the count of rows
/// of each, `counts` points to their counts along the width. Lanes without a window have 1.
template <simd::Vector V>
[[gnu::always_inline]] inline V divisors(const PoolPlan& plan, V rows, const float* counts,
                                         int64_t n) {
  if (plan.shape.divisor > 0) return V(static_cast<float>(plan.shape.divisor));
  return select(V::Mask::first(n), rows * V::load(counts), V(1.0f));
}

}  // namespace sluice::cpu
