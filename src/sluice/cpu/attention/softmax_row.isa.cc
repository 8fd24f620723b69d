#include "sluice/cpu/attention/softmax_row.h"

#include <algorithm>

#include "sluice/base/numbers/simd_math.h"
#include "sluice/cpu/reduce/row_vectors.h"
#include "sluice/cpu/simd/divide.h"

namespace sluice::cpu::internal {
namespace {

// Replaces products by scores, from sum_begin to end; -inf where the query sees no key.
void make_scores(const ScoreRow& r) {
  const V scale(r.scale);
  const int64_t n = r.end - r.sum_begin;
  float* const x = r.x + r.sum_begin;
  if (r.add != nullptr && r.mask_step == 1) {
    const float* const add = r.add + r.sum_begin;
    for_each_vector(n, x, [&](int64_t i, int64_t count) {
      return load(x + i, count) * scale + load(add + i, count);
    });
  } else if (r.add != nullptr) {
    const V add(*r.add);
    for_each_vector(n, x,
                    [&](int64_t i, int64_t count) { return load(x + i, count) * scale + add; });
  } else {
    for_each_vector(n, x, [&](int64_t i, int64_t count) { return load(x + i, count) * scale; });
  }
  if (r.seen != nullptr) {
    const unsigned char* const seen = r.seen + r.sum_begin * r.mask_step;
    for (int64_t i = 0; i < n; ++i) x[i] = seen[i * r.mask_step] != 0 ? x[i] : -kInfinity;
  }
  std::fill(x, r.x + r.begin, -kInfinity);
}

// Vectors of a short row, which are not stored and loaded between steps: a load of a vector waits
// for the store of a part of it.
constexpr int64_t kShortVectors = 8;
constexpr int64_t kShortRow = kShortVectors * kLanes;

// Whether scores are products and a factor, for all keys of the sum.
bool is_plain(const ScoreRow& r) {
  return r.add == nullptr && r.seen == nullptr && r.begin == r.sum_begin;
}

void clear_unseen(const ScoreRow& r, float* x) {
  std::fill(x, x + r.begin, 0.0F);
  std::fill(x + r.end, x + r.cols, 0.0F);
}

}  // namespace

namespace {

// softmax() of a plain row of at most kShortRow keys.
RowSums short_softmax(const ScoreRow& r) {
  const V scale(r.scale);
  const int64_t n = r.end - r.sum_begin;
  float* const x = r.x + r.sum_begin;
  V kept[kShortVectors];
  V largest_of_lanes(-kInfinity);
  for (int64_t i = 0; i < n; i += kLanes) {
    V& score = kept[i / kLanes];
    score = load(x + i, n - i) * scale;
    if (n - i < kLanes) score = select(V::Mask::first(n - i), score, V(-kInfinity));
    largest_of_lanes = max_or_nan(largest_of_lanes, score);
  }
  RowSums sums{.top = fold_lanes(largest_of_lanes, Larger{})};
  if (sums.top == -kInfinity) {
    std::fill(r.x, r.x + r.cols, 0.0F);
    return sums;
  }
  const V top(sums.top);
  sums.total = reduce_row(n, Add{}, [&](int64_t i, int64_t) {
    V& e = kept[i / kLanes];
    return e = exp(e - top);
  });
  const Divider<V> by_total{V(sums.total)};
  for_each_vector(n, x, [&](int64_t i, int64_t) { return by_total(kept[i / kLanes]); });
  clear_unseen(r, r.x);
  return sums;
}

// gradient() of a plain row of at most kShortRow keys.
void short_gradient(const ScoreRow& r, const RowSums& sums, float* grad) {
  const V scale(r.scale), top(sums.top);
  const int64_t n = r.end - r.sum_begin;
  float* const x = r.x + r.sum_begin;
  float* const g = grad + r.sum_begin;
  const Divider<V> by_total{V(sums.total)};
  V kept[kShortVectors];
  const V dot(reduce_row(n, Add{}, [&](int64_t i, int64_t count) {
    const V p = by_total(exp(load(x + i, count) * scale - top));
    kept[i / kLanes] = p;
    store(p, x + i, count);
    return load(g + i, count) * p;
  }));
  for_each_vector(n, g, [&](int64_t i, int64_t count) {
    return kept[i / kLanes] * (load(g + i, count) - dot) * scale;
  });
  clear_unseen(r, r.x);
  clear_unseen(r, grad);
}

}  // namespace

using RowKernels = ScoreRowKernels<kUnitIsa>;

// One function without calls: rows may be short.
template <>
[[gnu::flatten]] RowSums RowKernels::softmax(const ScoreRow& r) {
  if (is_plain(r) && r.end - r.sum_begin <= kShortRow) return short_softmax(r);
  make_scores(r);
  const int64_t n = r.end - r.sum_begin;
  float* const x = r.x + r.sum_begin;
  RowSums sums{.top = largest(x, n)};
  if (sums.top == -kInfinity) {
    std::fill(r.x, r.x + r.cols, 0.0F);
    return sums;
  }
  const V top(sums.top);
  sums.total = reduce_row(n, Add{}, [&](int64_t i, int64_t count) {
    const V e = exp(load(x + i, count) - top);
    store(e, x + i, count);
    return e;
  });
  const Divider<V> by_total{V(sums.total)};
  for_each_vector(n, x, [&](int64_t i, int64_t count) { return by_total(load(x + i, count)); });
  clear_unseen(r, r.x);
  return sums;
}

template <>
[[gnu::flatten]] void RowKernels::gradient(const ScoreRow& r, const RowSums& sums, float* grad) {
  if (sums.top == -kInfinity) {
    std::fill(r.x, r.x + r.cols, 0.0F);
    std::fill(grad, grad + r.cols, 0.0F);
    return;
  }
  if (is_plain(r) && r.end - r.sum_begin <= kShortRow) return short_gradient(r, sums, grad);
  make_scores(r);
  const int64_t n = r.end - r.sum_begin;
  float* const x = r.x + r.sum_begin;
  float* const g = grad + r.sum_begin;
  std::fill(g, grad + r.begin, 0.0F);
  const V top(sums.top);
  const Divider<V> by_total{V(sums.total)};
  const V dot(reduce_row(n, Add{}, [&](int64_t i, int64_t count) {
    const V p = by_total(exp(load(x + i, count) - top));
    store(p, x + i, count);
    return load(g + i, count) * p;
  }));
  const V scale(r.scale);
  for_each_vector(n, g, [&](int64_t i, int64_t count) {
    return load(x + i, count) * (load(g + i, count) - dot) * scale;
  });
  clear_unseen(r, r.x);
  clear_unseen(r, grad);
}

template <>
bool RowKernels::has_non_finite(const float* x, int64_t stride, int64_t rows, int64_t cols) {
  // 0·x is NaN, and stays NaN in a sum.
  V sums[2] = {V(0.0F), V(0.0F)};
  for (int64_t r = 0; r < rows; ++r, x += stride) {
    int64_t i = 0;
    for (; i + 2 * kLanes <= cols; i += 2 * kLanes) {
      for (int v = 0; v < 2; ++v) sums[v] = fma(V::load(x + i + v * kLanes), V(0.0F), sums[v]);
    }
    for (; i < cols; i += kLanes) sums[0] = fma(load(x + i, cols - i), V(0.0F), sums[0]);
  }
  const V sum = sums[0] + sums[1];
  return any(sum != sum);
}

}  // namespace sluice::cpu::internal
