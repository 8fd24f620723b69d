#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "sluice/base/ids/ids.h"

namespace sluice {

/// Number of partial results of a reduction. It does not depend on the vector width.
inline constexpr int kReduceLanes = 16;

/// Combines the partial results of a reduction in the fixed tree 8+8, 4+4, 2+2, 1+1.
template <typename T, typename Combine>
T reduce_lanes(std::array<T, kReduceLanes> partial, Combine&& combine) {
  for (size_t half = kReduceLanes / 2; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) partial[j] = combine(partial[j], partial[j + half]);
  }
  return partial[0];
}

/// Elements per chunk. A longer reduction is cut into chunks, which several workers can reduce.
inline constexpr int64_t kReduceChunk = 65536;

/// Reduces load(0), …, load(n - 1) with `combine(partial, element)`, in the order that every kernel
/// uses. For n <= kReduceChunk, partial result j starts from `identity` and combines elements j,
/// j + 16, j + 32, … in this order. reduce_lanes then combines the partial results. For larger n,
/// each chunk of kReduceChunk elements is reduced like this, and then the results of the chunks
/// are.
template <typename T, typename Load, typename Combine>
T canonical_reduce(int64_t n, T identity, Load&& load, Combine&& combine) {
  const auto reduce = [&](int64_t count, auto element) {
    std::array<T, kReduceLanes> partial;
    partial.fill(identity);
    for (int64_t i = 0; i < count; ++i) {
      T& p = at(partial, i % kReduceLanes);
      p = combine(p, element(i));
    }
    return reduce_lanes(partial, combine);
  };
  if (n <= kReduceChunk) return reduce(n, load);
  return reduce((n + kReduceChunk - 1) / kReduceChunk, [&](int64_t chunk) {
    const int64_t first = chunk * kReduceChunk;
    return reduce(std::min(kReduceChunk, n - first), [&](int64_t i) { return load(first + i); });
  });
}

/// Sums load(0), …, load(n - 1) in the order of canonical_reduce.
template <typename T, typename Load>
T canonical_sum(int64_t n, Load&& load) {
  return canonical_reduce(n, T{}, load, [](T a, T b) { return a + b; });
}

}  // namespace sluice
