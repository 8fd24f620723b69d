#include "sluice/cpu/kernels/rotary/rotary.h"

#include "sluice/cpu/simd/pairs.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
constexpr int64_t kLanes = V::kLanes;

/// Rotates the pairs (a, b) by the angles with these cosines and sines.
template <bool kInverse>
[[gnu::always_inline]] inline void rotate(V& a, V& b, V cosine, V sine) {
  const V x = a;
  if constexpr (kInverse) {
    a = x * cosine + b * sine;
    b = b * cosine - x * sine;
  } else {
    a = x * cosine - b * sine;
    b = b * cosine + x * sine;
  }
}

template <bool kInterleaved, bool kInverse>
void run_rotary(const RotaryRows& shape, const float* x, const float* table, float* y) {
  const int64_t half = shape.half;
  for (int64_t r = 0; r < shape.rows; ++r, x += shape.size, y += shape.size) {
    const float* const cosine = table + (shape.first + r) % shape.length * 2 * half;
    const float* const sine = cosine + half;
    for (int64_t i = 0; i < half; i += kLanes) {
      const int64_t count = half - i;
      const V c = load_some<V>(cosine + i, count), s = load_some<V>(sine + i, count);
      V a, b;
      if constexpr (kInterleaved) {
        load_pairs(x + 2 * i, 2 * count, a, b);
        rotate<kInverse>(a, b, c, s);
        store_pairs(a, b, y + 2 * i, 2 * count);
      } else {
        a = load_some<V>(x + i, count);
        b = load_some<V>(x + half + i, count);
        rotate<kInverse>(a, b, c, s);
        store_some(a, y + i, count);
        store_some(b, y + half + i, count);
      }
    }
    for (int64_t i = 2 * half; i < shape.size; i += kLanes)
      store_some(load_some<V>(x + i, shape.size - i), y + i, shape.size - i);
  }
}

}  // namespace

template <>
void RotaryKernels<kUnitIsa>::run(const RotaryRows& shape, const float* x, const float* table,
                                  float* y) {
  if (shape.interleaved) {
    (shape.inverse ? run_rotary<true, true> : run_rotary<true, false>)(shape, x, table, y);
  } else {
    (shape.inverse ? run_rotary<false, true> : run_rotary<false, false>)(shape, x, table, y);
  }
}

}  // namespace sluice::cpu::internal
