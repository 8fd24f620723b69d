#pragma once
#include <array>
#include <cstdint>

#include "sluice/base/simd.h"

/// The vectors of simd.h with 8 lanes (F8: AVX2, FMA and F16C) and with 16 lanes (F16: AVX-512 F,
/// BW, DQ and VL). Each is defined only in files compiled for its instruction set (unit.h).
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about the deliberately undefined operands of its own AVX-512 intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

namespace sluice::simd {

struct I8 {
  __m256i v;
  I8() = default;
  I8(__m256i x) : v(x) {}                     // NOLINT: implicit
  I8(int32_t x) : v(_mm256_set1_epi32(x)) {}  // NOLINT: implicit

  static I8 load(const int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static I8 load(const uint16_t* p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static I8 load(const uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  void store(int32_t* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  void store(uint16_t* p) const {
    const __m256i low = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    const __m256i pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(pairs));
  }
  void store(uint8_t* p) const {
    const __m256i low = _mm256_shuffle_epi8(v, _mm256_set1_epi32(0x0c080400));
    const __m128i all =
        _mm_unpacklo_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), all);
  }

  friend I8 operator+(I8 a, I8 b) { return _mm256_add_epi32(a.v, b.v); }
  friend I8 operator-(I8 a, I8 b) { return _mm256_sub_epi32(a.v, b.v); }
  friend I8 operator&(I8 a, I8 b) { return _mm256_and_si256(a.v, b.v); }
  friend I8 operator|(I8 a, I8 b) { return _mm256_or_si256(a.v, b.v); }
  friend I8 operator^(I8 a, I8 b) { return _mm256_xor_si256(a.v, b.v); }
};
// Even and odd lanes are multiplied separately, to products of 64 bits.
inline I8 wide_product(I8 a, uint32_t b, I8& high) {
  const __m256i factor = _mm256_set1_epi32(static_cast<int32_t>(b));
  const __m256i even = _mm256_mul_epu32(a.v, factor);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a.v, 32), factor);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
template <int kBits>
I8 shift_left(I8 a) {
  return _mm256_slli_epi32(a.v, kBits);
}
template <int kBits>
I8 shift_right(I8 a) {
  return _mm256_srai_epi32(a.v, kBits);
}

/// A mask. All bits of a lane are set if the mask is true there.
struct M8 {
  __m256 v;
  static M8 first(int64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int count = static_cast<int>(n < 8 ? n : 8);
    return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane))};
  }
  friend M8 operator&(M8 a, M8 b) { return {_mm256_and_ps(a.v, b.v)}; }
  friend M8 operator|(M8 a, M8 b) { return {_mm256_or_ps(a.v, b.v)}; }
  friend M8 operator!(M8 a) {
    return {_mm256_xor_ps(a.v, _mm256_castsi256_ps(_mm256_set1_epi32(-1)))};
  }
  friend bool any(M8 a) { return _mm256_movemask_ps(a.v) != 0; }
};

struct F8 {
  static constexpr int kLanes = 8;
  using Int = I8;
  using Mask = M8;

  __m256 v;
  F8() = default;
  F8(__m256 x) : v(x) {}                 // NOLINT: implicit
  F8(float x) : v(_mm256_set1_ps(x)) {}  // NOLINT: implicit

  static F8 load(const float* p) { return _mm256_loadu_ps(p); }
  static F8 load_partial(const float* p, int64_t n) {
    return _mm256_maskload_ps(p, _mm256_castps_si256(M8::first(n).v));
  }
  static F8 load_masked(const float* p, M8 lanes) {
    return _mm256_maskload_ps(p, _mm256_castps_si256(lanes.v));
  }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  void store_partial(float* p, int64_t n) const {
    _mm256_maskstore_ps(p, _mm256_castps_si256(M8::first(n).v), v);
  }
  static F8 load_half(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  void store_half(uint16_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }

  friend F8 operator+(F8 a, F8 b) { return _mm256_add_ps(a.v, b.v); }
  friend F8 operator-(F8 a, F8 b) { return _mm256_sub_ps(a.v, b.v); }
  friend F8 operator*(F8 a, F8 b) { return _mm256_mul_ps(a.v, b.v); }
  friend F8 operator/(F8 a, F8 b) { return _mm256_div_ps(a.v, b.v); }
  friend F8 operator-(F8 a) { return _mm256_xor_ps(a.v, _mm256_set1_ps(-0.0f)); }

  friend M8 operator<(F8 a, F8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
  friend M8 operator<=(F8 a, F8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
  friend M8 operator>(F8 a, F8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)}; }
  friend M8 operator>=(F8 a, F8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)}; }
  friend M8 operator==(F8 a, F8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
  friend M8 operator!=(F8 a, F8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_NEQ_UQ)}; }
};

inline F8 fma(F8 a, F8 b, F8 c) { return _mm256_fmadd_ps(a.v, b.v, c.v); }
inline F8 min(F8 a, F8 b) { return _mm256_min_ps(a.v, b.v); }
inline F8 max(F8 a, F8 b) { return _mm256_max_ps(a.v, b.v); }
inline F8 sqrt(F8 a) { return _mm256_sqrt_ps(a.v); }
inline F8 abs(F8 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v); }
inline F8 floor(F8 a) { return _mm256_floor_ps(a.v); }
inline F8 ceil(F8 a) { return _mm256_ceil_ps(a.v); }
inline F8 trunc(F8 a) { return _mm256_round_ps(a.v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
inline F8 round_nearest(F8 a) {
  return _mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline F8 copysign(F8 magnitude, F8 sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.v), _mm256_and_ps(bit, sign.v));
}
inline F8 select(M8 m, F8 a, F8 b) { return _mm256_blendv_ps(b.v, a.v, m.v); }
inline I8 bits(F8 a) { return _mm256_castps_si256(a.v); }
inline F8 from_bits(I8 a) { return _mm256_castsi256_ps(a.v); }
inline I8 select(M8 m, I8 a, I8 b) { return bits(select(m, from_bits(a), from_bits(b))); }
inline F8 to_float(I8 a) { return _mm256_cvtepi32_ps(a.v); }
inline I8 to_int(F8 a) { return _mm256_cvttps_epi32(a.v); }
inline M8 is_nan(F8 a) { return a != a; }

template <int kBy>
F8 lanes_down(F8 a) {
  if constexpr (kBy == 4)
    return _mm256_permute2f128_ps(a.v, a.v, 0x81);
  else if constexpr (kBy == 2)
    return _mm256_permute_ps(a.v, 0xee);
  else
    return _mm256_permute_ps(a.v, 0xf5);
}
inline float first_lane(F8 a) { return _mm256_cvtss_f32(a.v); }

/// For each set of lanes, the lanes in ascending order, one byte each.
inline constexpr std::array<uint64_t, 256> kCompressed8 = [] {
  std::array<uint64_t, 256> order{};
  for (size_t lanes = 0; lanes < 256; ++lanes) {
    for (uint64_t lane = 0, n = 0; lane < 8; ++lane) {
      if ((lanes >> lane & 1) != 0) order[lanes] |= lane << (8 * n++);
    }
  }
  return order;
}();
inline F8 compress(F8 a, uint32_t lanes) {
  const __m128i order = _mm_cvtsi64_si128(static_cast<int64_t>(kCompressed8[lanes]));
  return _mm256_permutevar8x32_ps(a.v, _mm256_cvtepu8_epi32(order));
}

inline void transpose(F8 (&r)[8]) {
  __m256 t[8], u[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i].v, r[2 * i + 1].v);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i].v, r[2 * i + 1].v);
  }
  for (int i = 0; i < 2; ++i) {
    u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

}  // namespace sluice::simd
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
namespace sluice::simd {

struct I16 {
  __m512i v;
  I16() = default;
  I16(__m512i x) : v(x) {}                     // NOLINT: implicit
  I16(int32_t x) : v(_mm512_set1_epi32(x)) {}  // NOLINT: implicit

  static I16 load(const int32_t* p) { return _mm512_loadu_si512(p); }
  static I16 load(const uint16_t* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static I16 load(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  void store(int32_t* p) const { _mm512_storeu_si512(p, v); }
  void store(uint16_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v));
  }
  void store(uint8_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
  }

  friend I16 operator+(I16 a, I16 b) { return _mm512_add_epi32(a.v, b.v); }
  friend I16 operator-(I16 a, I16 b) { return _mm512_sub_epi32(a.v, b.v); }
  friend I16 operator&(I16 a, I16 b) { return _mm512_and_si512(a.v, b.v); }
  friend I16 operator|(I16 a, I16 b) { return _mm512_or_si512(a.v, b.v); }
  friend I16 operator^(I16 a, I16 b) { return _mm512_xor_si512(a.v, b.v); }
};
inline I16 wide_product(I16 a, uint32_t b, I16& high) {
  const __m512i factor = _mm512_set1_epi32(static_cast<int32_t>(b));
  const __m512i even = _mm512_mul_epu32(a.v, factor);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), factor);
  high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
  return _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}
template <int kBits>
I16 shift_left(I16 a) {
  return _mm512_slli_epi32(a.v, kBits);
}
template <int kBits>
I16 shift_right(I16 a) {
  return _mm512_srai_epi32(a.v, kBits);
}

struct M16 {
  __mmask16 v;
  static M16 first(int64_t n) {
    return {static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << (n > 0 ? n : 0)) - 1u)};
  }
  friend M16 operator&(M16 a, M16 b) { return {static_cast<__mmask16>(a.v & b.v)}; }
  friend M16 operator|(M16 a, M16 b) { return {static_cast<__mmask16>(a.v | b.v)}; }
  friend M16 operator!(M16 a) { return {static_cast<__mmask16>(~a.v)}; }
  friend bool any(M16 a) { return a.v != 0; }
};

struct F16 {
  static constexpr int kLanes = 16;
  using Int = I16;
  using Mask = M16;

  __m512 v;
  F16() = default;
  F16(__m512 x) : v(x) {}                 // NOLINT: implicit
  F16(float x) : v(_mm512_set1_ps(x)) {}  // NOLINT: implicit

  static F16 load(const float* p) { return _mm512_loadu_ps(p); }
  static F16 load_partial(const float* p, int64_t n) {
    return _mm512_maskz_loadu_ps(M16::first(n).v, p);
  }
  static F16 load_masked(const float* p, M16 lanes) { return _mm512_maskz_loadu_ps(lanes.v, p); }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store_partial(float* p, int64_t n) const { _mm512_mask_storeu_ps(p, M16::first(n).v, v); }
  static F16 load_half(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  void store_half(uint16_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }

  friend F16 operator+(F16 a, F16 b) { return _mm512_add_ps(a.v, b.v); }
  friend F16 operator-(F16 a, F16 b) { return _mm512_sub_ps(a.v, b.v); }
  friend F16 operator*(F16 a, F16 b) { return _mm512_mul_ps(a.v, b.v); }
  friend F16 operator/(F16 a, F16 b) { return _mm512_div_ps(a.v, b.v); }
  friend F16 operator-(F16 a) { return _mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f)); }

  friend M16 operator<(F16 a, F16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
  friend M16 operator<=(F16 a, F16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
  friend M16 operator>(F16 a, F16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
  friend M16 operator>=(F16 a, F16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)}; }
  friend M16 operator==(F16 a, F16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
  friend M16 operator!=(F16 a, F16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NEQ_UQ)}; }
};

inline F16 fma(F16 a, F16 b, F16 c) { return _mm512_fmadd_ps(a.v, b.v, c.v); }
inline F16 min(F16 a, F16 b) { return _mm512_min_ps(a.v, b.v); }
inline F16 max(F16 a, F16 b) { return _mm512_max_ps(a.v, b.v); }
/// Computes the correctly rounded square root with Newton's iteration in fused multiply-adds, from
/// an estimate. It takes a third of the time of the instruction and leaves the divider free. The
/// last step rounds correctly if nothing underflows (P. Markstein, IA-64 and Elementary Functions,
/// 2000); a test checks every mantissa. Vectors outside the safe range use the instruction.
inline F16 sqrt(F16 a) {
  const __m512 zero = _mm512_setzero_ps();
  const __mmask16 is_zero = _mm512_cmp_ps_mask(a.v, zero, _CMP_EQ_OQ);
  const __mmask16 easy = _mm512_cmp_ps_mask(a.v, _mm512_set1_ps(0x1p-100f), _CMP_GE_OQ) &
                         _mm512_cmp_ps_mask(a.v, _mm512_set1_ps(0x1p100f), _CMP_LE_OQ);
  if (__builtin_expect((easy | is_zero) != 0xffff, 0)) return _mm512_sqrt_ps(a.v);
  const __m512 half = _mm512_set1_ps(0.5f);
  const __m512 y = _mm512_rsqrt14_ps(a.v);
  const __m512 g = _mm512_mul_ps(a.v, y);
  const __m512 h = _mm512_mul_ps(half, y);
  const __m512 r = _mm512_fnmadd_ps(g, h, half);
  const __m512 g1 = _mm512_fmadd_ps(g, r, g);
  const __m512 h1 = _mm512_fmadd_ps(h, r, h);
  const __m512 d = _mm512_fnmadd_ps(g1, g1, a.v);
  // Keep only the sign of a zero: if denormals are treated as zero, `a` may be a denormal.
  return _mm512_mask_and_ps(_mm512_fmadd_ps(d, h1, g1), is_zero, a.v, _mm512_set1_ps(-0.0f));
}
/// Returns x·2ⁿ, rounded once. n must be an integer.
inline F16 scale(F16 x, F16 n) { return _mm512_scalef_ps(x.v, n.v); }
inline F16 abs(F16 a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v); }
inline F16 floor(F16 a) {
  return _mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
inline F16 ceil(F16 a) {
  return _mm512_roundscale_ps(a.v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
inline F16 trunc(F16 a) {
  return _mm512_roundscale_ps(a.v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
inline F16 round_nearest(F16 a) {
  return _mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline F16 copysign(F16 magnitude, F16 sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v));
}
inline F16 select(M16 m, F16 a, F16 b) { return _mm512_mask_blend_ps(m.v, b.v, a.v); }
inline I16 select(M16 m, I16 a, I16 b) { return _mm512_mask_blend_epi32(m.v, b.v, a.v); }
inline I16 bits(F16 a) { return _mm512_castps_si512(a.v); }
inline F16 from_bits(I16 a) { return _mm512_castsi512_ps(a.v); }
inline F16 to_float(I16 a) { return _mm512_cvtepi32_ps(a.v); }
inline I16 to_int(F16 a) { return _mm512_cvttps_epi32(a.v); }
inline M16 is_nan(F16 a) { return a != a; }

template <int kBy>
F16 lanes_down(F16 a) {
  if constexpr (kBy == 8)
    return _mm512_shuffle_f32x4(a.v, a.v, 0xee);
  else if constexpr (kBy == 4)
    return _mm512_shuffle_f32x4(a.v, a.v, 0xf5);
  else if constexpr (kBy == 2)
    return _mm512_permute_ps(a.v, 0xee);
  else
    return _mm512_permute_ps(a.v, 0xf5);
}
inline float first_lane(F16 a) { return _mm512_cvtss_f32(a.v); }
inline F16 compress(F16 a, uint32_t lanes) {
  return _mm512_maskz_compress_ps(static_cast<__mmask16>(lanes), a.v);
}

inline void transpose(F16 (&r)[16]) {
  __m512 t[16], u[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i].v, r[2 * i + 1].v);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i].v, r[2 * i + 1].v);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    u[4 * i] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    u[4 * i + 1] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    u[4 * i + 2] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    u[4 * i + 3] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  // u[4g + c] holds columns c, c+4, c+8 and c+12 of rows 4g to 4g+3, four lanes for each column.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 a = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88);
    const __m512 b = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xdd);
    const __m512 e = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xdd);
    r[c] = _mm512_shuffle_f32x4(a, b, 0x88);
    r[c + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
    r[c + 4] = _mm512_shuffle_f32x4(d, e, 0x88);
    r[c + 12] = _mm512_shuffle_f32x4(d, e, 0xdd);
  }
}

}  // namespace sluice::simd
#endif
