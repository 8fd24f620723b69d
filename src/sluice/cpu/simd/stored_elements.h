#pragma once
#include <cstring>

#include "sluice/cpu/simd/unit.h"

/// Loads elements of any dtype into vectors of f32, and stores them. Included by .isa.cc files
/// only.
namespace sluice::cpu {

/// Stored elements of f16, bf16 and bool. Integers use their C++ types.
struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};
struct Truth {
  uint8_t value;
};

template <simd::Vector V>
V load_elements(const float* p) {
  return V::load(p);
}
template <simd::Vector V>
V load_elements(const Half* p) {
  return V::load_half(reinterpret_cast<const uint16_t*>(p));
}
template <simd::Vector V>
V load_elements(const Bfloat* p) {
  return from_bits(simd::shift_left<16>(V::Int::load(reinterpret_cast<const uint16_t*>(p))));
}
template <simd::Vector V>
V load_elements(const int32_t* p) {
  return to_float(V::Int::load(p));
}
template <simd::Vector V>
V load_elements(const uint32_t* p) {
  using Int = typename V::Int;
  // Both halves convert exactly, so only their sum is rounded.
  const Int x = Int::load(reinterpret_cast<const int32_t*>(p));
  return to_float(simd::shift_right<16>(x) & Int(0xffff)) * 65536.0f + to_float(x & Int(0xffff));
}
template <simd::Vector V>
V load_elements(const uint8_t* p) {
  return to_float(V::Int::load(p));
}
template <simd::Vector V>
V load_elements(const Truth* p) {
  return to_float(V::Int::load(reinterpret_cast<const uint8_t*>(p)));
}

template <simd::Vector V>
void store_elements(V v, float* p) {
  v.store(p);
}
template <simd::Vector V>
void store_elements(V v, Half* p) {
  v.store_half(reinterpret_cast<uint16_t*>(p));
}
template <simd::Vector V>
void store_elements(V v, Bfloat* p) {
  using Int = typename V::Int;
  const Int x = bits(v);
  const Int rounded = x + Int(0x7fff) + (simd::shift_right<16>(x) & Int(1));
  const Int kept = select(is_nan(v), x | Int(0x400000), rounded);
  simd::shift_right<16>(kept).store(reinterpret_cast<uint16_t*>(p));
}
template <simd::Vector V>
void store_elements(V v, int32_t* p) {
  using Int = typename V::Int;
  const Int fitting = select(v >= V(0x1p31f), Int(INT32_MAX), to_int(v));
  select(is_nan(v), Int(0), fitting).store(p);
}
template <simd::Vector V>
void store_elements(V v, uint32_t* p) {
  using Int = typename V::Int;
  const V x = max(v, V(0.0f));  // NaN becomes 0.
  const auto high = x >= V(0x1p31f);
  const Int low_bits = to_int(select(high, x - 0x1p31f, x));
  const Int fitting = select(high, low_bits + Int(INT32_MIN), low_bits);
  select(x >= V(0x1p32f), Int(-1), fitting).store(reinterpret_cast<int32_t*>(p));
}
template <simd::Vector V>
void store_elements(V v, uint8_t* p) {
  to_int(min(max(v, V(0.0f)), V(255.0f))).store(p);  // NaN becomes 0.
}
template <simd::Vector V>
void store_elements(V v, Truth* p) {
  using Int = typename V::Int;
  select(v != V(0.0f), Int(1), Int(0)).store(reinterpret_cast<uint8_t*>(p));
}

/// Loads `count` < V::kLanes elements; the other lanes are 0. Reads no other memory.
template <simd::Vector V, typename T>
V load_elements_partial(const T* p, int64_t count) {
  if constexpr (std::is_same_v<T, float>) return V::load_partial(p, count);
  T all[V::kLanes] = {};
  if (count > 0) std::memcpy(all, p, static_cast<size_t>(count) * sizeof(T));
  return load_elements<V>(all);
}
/// Stores the first `count` < V::kLanes lanes and writes no other memory.
template <simd::Vector V, typename T>
void store_elements_partial(V v, T* p, int64_t count) {
  T all[V::kLanes];
  store_elements(v, all);
  if (count > 0) std::memcpy(p, all, static_cast<size_t>(count) * sizeof(T));
}

}  // namespace sluice::cpu
