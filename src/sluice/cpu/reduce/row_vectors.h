#pragma once
#include <cstdint>
#include <limits>

#include "sluice/cpu/simd/stored_elements.h"
#include "sluice/cpu/simd/unit.h"

/// Reductions of rows in the canonical order of base/reduce.h. Included by files x.isa.cc only.
namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
constexpr int kLanes = V::kLanes;
constexpr int kPartials = 16;                 ///< kReduceLanes of base/reduce.h.
constexpr int64_t kChunk = 65536;             ///< kReduceChunk of base/reduce.h.
constexpr int kVectors = kPartials / kLanes;  ///< Vectors with the partial results of one row.
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Add {
  static constexpr float kIdentity = 0;
  V operator()(V a, V b) const { return a + b; }
};
struct Larger {
  static constexpr float kIdentity = -kInfinity;
  V operator()(V a, V b) const { return max_or_nan(a, b); }
};
/// Returns the canonical reduction of elements [begin, end), at most kChunk of them. element(i,
/// count) returns a vector with elements i, i + 1, …, of which min(count, kLanes) are used. It is
/// called once for each vector, in ascending order.
template <typename Combine, typename Element>
float reduce_chunk(int64_t begin, int64_t end, Combine combine, Element element) {
  V partial[kVectors];
  for (V& p : partial) p = V(Combine::kIdentity);
  int64_t i = begin;
  for (; i + kPartials <= end; i += kPartials) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v)
      partial[v] = combine(partial[v], element(i + v * kLanes, kLanes));
  }
  for (int v = 0; v < kVectors && i < end; ++v, i += kLanes) {
    partial[v] =
        select(V::Mask::first(end - i), combine(partial[v], element(i, end - i)), partial[v]);
  }
  for (int half = kVectors / 2; half > 0; half /= 2) {
    for (int v = 0; v < half; ++v) partial[v] = combine(partial[v], partial[v + half]);
  }
  return fold_lanes(partial[0], combine);
}

/// Returns the canonical reduction of n elements. `element` is as for reduce_chunk().
template <typename Combine, typename Element>
float reduce_row(int64_t n, Combine combine, Element element) {
  if (n <= kChunk) return reduce_chunk(0, n, combine, element);
  alignas(64) float partial[kPartials];
  for (float& p : partial) p = Combine::kIdentity;
  for (int64_t first = 0; first < n; first += kChunk) {
    const int64_t rest = n - first;
    const float chunk =
        reduce_chunk(first, first + (rest < kChunk ? rest : kChunk), combine, element);
    float& p = partial[first / kChunk % kPartials];
    combine(V(p), V(chunk)).store_partial(&p, 1);
  }
  V lanes[kVectors];
  for (int v = 0; v < kVectors; ++v) lanes[v] = V::load(partial + v * kLanes);
  for (int half = kVectors / 2; half > 0; half /= 2) {
    for (int v = 0; v < half; ++v) lanes[v] = combine(lanes[v], lanes[v + half]);
  }
  return fold_lanes(lanes[0], combine);
}

/// Loads the first min(count, kLanes) elements at `p`; other lanes are 0.
template <typename T>
V load(const T* p, int64_t count) {
  return count >= kLanes ? load_elements<V>(p) : load_elements_partial<V>(p, count);
}
void store(V v, float* p, int64_t count) {
  if (count >= kLanes)
    v.store(p);
  else
    v.store_partial(p, count);
}

/// Returns the largest element, NaN if any is NaN. The order does not matter, except for the sign
/// of a zero, which does not change exp(). So several independent chains hide the latency of a
/// step.
float largest(const float* x, int64_t n) {
  constexpr int kChains = 4;
  V chains[kChains];
  for (V& c : chains) c = V(-kInfinity);
  int64_t i = 0;
  for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c)
      chains[c] = max_or_nan(chains[c], V::load(x + i + c * kLanes));
  }
  for (; i < n; i += kLanes) {
    chains[0] = select(V::Mask::first(n - i), max_or_nan(chains[0], load(x + i, n - i)), chains[0]);
  }
  if (n < kChains * kLanes) return fold_lanes(chains[0], Larger{});
  return fold_lanes(max_or_nan(max_or_nan(chains[0], chains[1]), max_or_nan(chains[2], chains[3])),
                    Larger{});
}

/// Computes n elements of y, vector by vector: f(i, count) returns the elements from i on.
template <typename F>
void for_each_vector(int64_t n, float* y, F f) {
  for (int64_t i = 0; i < n; i += kLanes) store(f(i, n - i), y + i, n - i);
}

}  // namespace
}  // namespace sluice::cpu::internal
