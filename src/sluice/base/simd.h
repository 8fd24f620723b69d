#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "sluice/base/dtype.h"

/// Vectors of f32 lanes. Code written as a template over the vector type `V` computes the same bits
/// with one lane (`F1`, below), with 8 (AVX2) and with 16 (AVX-512). Every operation works lane by
/// lane and rounds once as IEEE requires. Every vector type has a NaN in the same lanes; its sign
/// and payload may differ. All this is true when the thread keeps denormals and when it flushes
/// them (flush_to_zero.h); a run uses one of these two modes throughout.
///
/// Every `V` has the following members and functions. Shared code must use only these:
///
///   V::kLanes, V::Int, V::Mask            number of lanes; int32 vector and mask with these lanes
///   V(float)                              all lanes equal; implicit, so `x * 0.5f` reads well
///   V::load(p), v.store(p)                kLanes floats, any alignment
///   V::load_partial(p, n)                 loads lanes < n only; the other lanes are 0
///   v.store_partial(p, n)                 lanes < n only; n may be anything >= 0
///   V::load_half(p), v.store_half(p)      kLanes IEEE binary16, rounded to nearest even; keep
///                                         binary16 denormals in both modes, make NaN quiet
///   + - * / and unary -                   one rounding each (never contracted)
///   fma(a, b, c)                          a·b + c with one rounding
///   min(a, b), max(a, b)                  a < b ? a : b, a > b ? a : b; b if a or b is NaN
///   max_or_nan(a, b), min_or_nan(a, b)    NaN if a or b is NaN
///   sqrt, abs, floor, ceil, trunc, round_nearest (ties to even), copysign(magnitude, sign), is_nan
///   < <= > >= == !=                       V::Mask; false for NaN, != true
///   & | ! on masks, V::Mask::first(n)     first(n) selects lanes < n
///   any(m)                                whether a lane of a mask is selected
///   select(m, a, b)                       a where m, else b
///   bits(v), from_bits(i)                 V::Int and back
///   V::Int(int32), + - & | ^              wrapping; shift_left<k>, shift_right<k> (arithmetic)
///   wide_product(i, uint32 b, V::Int& h)  lanes as uint32: returns the low words of i·b and sets h
///                                         to the high words
///   V::Int::load(p), i.store(p)           kLanes int32_t, uint16_t or uint8_t; load extends with
///                                         zeros, store keeps the low bits
///   to_float(i)                           rounded to nearest
///   to_int(v)                             toward zero; INT32_MIN for NaN and values out of range
///   first_lane(v)                         lane 0 as a float
///   lanes_down<k>(v), k < kLanes          moves lane j + k to lane j < k; other lanes: undefined
///   compress(v, uint32 lanes)             moves lanes whose bits are set to the first lanes, in
///                                         order; other lanes: undefined
///   transpose(V (&)[kLanes])              transposes a square of kLanes x kLanes
///
/// Reference kernels must use min and max of this file too. From `a > b ? a : b` the compiler may
/// generate an instruction that flushes denormals, or one that does not.
/// The mathematical functions are in simd_math.h.
namespace sluice::simd {

/// A vector type as described above.
template <typename V>
concept Vector = requires(V v, const float* p) {
  {V::load(p)};
  typename V::Int;
  typename V::Mask;
  requires V::kLanes >= 1;
};

/// One int32.
struct I1 {
  uint32_t v = 0;
  I1() = default;
  I1(int32_t x) : v(static_cast<uint32_t>(x)) {}  // NOLINT: implicit, as for wider vectors

  static I1 of_bits(uint32_t x) { return I1(static_cast<int32_t>(x)); }
  template <typename T>
  static I1 load(const T* p) {
    return I1(static_cast<int32_t>(*p));
  }
  template <typename T>
  void store(T* p) const {
    *p = static_cast<T>(v);
  }
  friend I1 operator+(I1 a, I1 b) { return of_bits(a.v + b.v); }
  friend I1 operator-(I1 a, I1 b) { return of_bits(a.v - b.v); }
  friend I1 operator&(I1 a, I1 b) { return of_bits(a.v & b.v); }
  friend I1 operator|(I1 a, I1 b) { return of_bits(a.v | b.v); }
  friend I1 operator^(I1 a, I1 b) { return of_bits(a.v ^ b.v); }
};
inline I1 wide_product(I1 a, uint32_t b, I1& high) {
  const uint64_t product = uint64_t{a.v} * b;
  high = I1::of_bits(static_cast<uint32_t>(product >> 32));
  return I1::of_bits(static_cast<uint32_t>(product));
}
template <int kBits>
I1 shift_left(I1 a) {
  return I1::of_bits(a.v << kBits);
}
template <int kBits>
I1 shift_right(I1 a) {
  return I1(static_cast<int32_t>(a.v) >> kBits);
}

/// One lane of a mask.
struct M1 {
  bool v = false;
  static M1 first(int64_t n) { return {n > 0}; }
  friend M1 operator&(M1 a, M1 b) { return {a.v && b.v}; }
  friend M1 operator|(M1 a, M1 b) { return {a.v || b.v}; }
  friend M1 operator!(M1 a) { return {!a.v}; }
  friend bool any(M1 a) { return a.v; }
};

/// One lane of f32: the type that defines the bits of every vector kernel.
struct F1 {
  static constexpr int kLanes = 1;
  using Int = I1;
  using Mask = M1;

  float v = 0;
  F1() = default;
  F1(float x) : v(x) {}  // NOLINT: implicit, so that literals mix with vectors

  static F1 load(const float* p) { return *p; }
  static F1 load_partial(const float* p, int64_t n) { return n > 0 ? *p : 0.0f; }
  static F1 load_masked(const float* p, M1 lanes) { return lanes.v ? *p : 0.0f; }
  static F1 load_half(const uint16_t* p) { return half_to_float(*p); }
  void store(float* p) const { *p = v; }
  void store_partial(float* p, int64_t n) const {
    if (n > 0) *p = v;
  }
  void store_half(uint16_t* p) const { *p = float_to_half(v); }

  friend F1 operator+(F1 a, F1 b) { return a.v + b.v; }
  friend F1 operator-(F1 a, F1 b) { return a.v - b.v; }
  friend F1 operator*(F1 a, F1 b) { return a.v * b.v; }
  friend F1 operator/(F1 a, F1 b) { return a.v / b.v; }
  friend F1 operator-(F1 a) { return -a.v; }

  friend M1 operator<(F1 a, F1 b) { return {a.v < b.v}; }
  friend M1 operator<=(F1 a, F1 b) { return {a.v <= b.v}; }
  friend M1 operator>(F1 a, F1 b) { return {a.v > b.v}; }
  friend M1 operator>=(F1 a, F1 b) { return {a.v >= b.v}; }
  friend M1 operator==(F1 a, F1 b) { return {a.v == b.v}; }
  friend M1 operator!=(F1 a, F1 b) { return {a.v != b.v}; }
};

inline F1 fma(F1 a, F1 b, F1 c) { return std::fma(a.v, b.v, c.v); }
#if defined(__SSE__)
// Use the minimum and maximum instructions: if denormals are flushed, they return a denormal as
// zero, but a comparison keeps it. Use the packed forms because GCC treats the scalar ones as
// symmetric in a and b.
inline F1 min(F1 a, F1 b) { return _mm_cvtss_f32(_mm_min_ps(_mm_set_ss(a.v), _mm_set_ss(b.v))); }
inline F1 max(F1 a, F1 b) { return _mm_cvtss_f32(_mm_max_ps(_mm_set_ss(a.v), _mm_set_ss(b.v))); }
#else
inline F1 min(F1 a, F1 b) { return a.v < b.v ? a.v : b.v; }
inline F1 max(F1 a, F1 b) { return a.v > b.v ? a.v : b.v; }
#endif
inline F1 sqrt(F1 a) { return std::sqrt(a.v); }
inline F1 abs(F1 a) { return std::fabs(a.v); }
inline F1 floor(F1 a) { return std::floor(a.v); }
inline F1 ceil(F1 a) { return std::ceil(a.v); }
inline F1 trunc(F1 a) { return std::trunc(a.v); }
inline F1 round_nearest(F1 a) { return std::nearbyint(a.v); }
inline F1 copysign(F1 magnitude, F1 sign) { return std::copysign(magnitude.v, sign.v); }
inline F1 select(M1 m, F1 a, F1 b) {
#if defined(__SSE__)
  // Hide from the compiler that m may be a comparison of a and b. It would replace the selection by
  // a minimum or maximum instruction, which flushes denormals.
  asm("" : "+x"(a.v));
#endif
  return m.v ? a : b;
}
inline I1 select(M1 m, I1 a, I1 b) { return m.v ? a : b; }
inline I1 bits(F1 a) { return I1::of_bits(std::bit_cast<uint32_t>(a.v)); }
inline F1 from_bits(I1 a) { return std::bit_cast<float>(a.v); }
inline F1 to_float(I1 a) { return static_cast<float>(static_cast<int32_t>(a.v)); }
inline I1 to_int(F1 a) {
  return a.v >= -0x1p31f && a.v < 0x1p31f ? I1(static_cast<int32_t>(a.v)) : I1(INT32_MIN);
}
inline M1 is_nan(F1 a) { return a != a; }

/// Return the larger (smaller) of a and b; NaN if a or b is NaN.
template <Vector V>
V max_or_nan(V a, V b) {
  return select((a > b) | is_nan(a), a, b);
}
template <Vector V>
V min_or_nan(V a, V b) {
  return select((a < b) | is_nan(a), a, b);
}

inline float first_lane(F1 a) { return a.v; }
inline F1 compress(F1 a, uint32_t) { return a; }
inline void transpose(F1 (&)[1]) {}

/// Combines the lanes of v into one float. The full tree is 8+8, 4+4, 2+2, 1+1; a V with fewer
/// lanes starts at its own width.
template <Vector V, typename Combine>
float fold_lanes(V v, Combine combine) {
  if constexpr (V::kLanes >= 16) v = combine(v, lanes_down<8>(v));
  if constexpr (V::kLanes >= 8) v = combine(v, lanes_down<4>(v));
  if constexpr (V::kLanes >= 4) v = combine(v, lanes_down<2>(v));
  if constexpr (V::kLanes >= 2) v = combine(v, lanes_down<1>(v));
  return first_lane(v);
}

}  // namespace sluice::simd
