#pragma once
#include <algorithm>
#include <cstdint>

#include "sluice/cpu/simd/unit.h"

/// Copies and transposes blocks of op(B) into the workspace. Included by gemm.isa.cc only.
namespace sluice::cpu::internal {

/// Copies out[k][j] = from[k·stride + j] for k < depth, j < cols. A row of `out` has `width` floats
/// (a multiple of the lanes); columns from `cols` on become zero.
template <typename V>
void copy_block(const float* from, int64_t stride, int64_t depth, int64_t cols, int64_t width,
                float* out) {
  if (cols == 32 && width == 32) {
    for (int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 32
      for (int j = 0; j < 32; j += V::kLanes)
        V::load(from + k * stride + j).store(out + k * 32 + j);
    }
    return;
  }
  for (int64_t k = 0; k < depth; ++k) {
    const float* p = from + k * stride;
    for (int64_t j = 0; j < width; j += V::kLanes)
      V::load_partial(p + j, cols - j).store(out + k * width + j);
  }
}

/// Transposes out[k·width + j] = from[j·stride + k] for j, k < V::kLanes.
template <typename V>
void transpose_square(const float* from, int64_t stride, int64_t width, float* out) {
  V square[V::kLanes];
  for (int j = 0; j < V::kLanes; ++j) square[j] = V::load(from + j * stride);
  transpose(square);
  for (int k = 0; k < V::kLanes; ++k) square[k].store(out + k * width);
}

#if SLUICE_UNIT_ISA == 2
/// A transposition needs 64 shuffles, which run on one port. Merging halves of rows while loading
/// them replaces a quarter of the shuffles by instructions that run on two ports.
template <>
inline void transpose_square<simd::F16>(const float* from, int64_t stride, int64_t width,
                                        float* out) {
  const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
  const __m512i high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
#pragma GCC unroll 2
  for (int half = 0; half < 16; half += 8) {
    __m512d z[8];
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r) {
      const float* const p = from + r * stride + half;
      z[r] = _mm512_castpd256_pd512(_mm256_castps_pd(_mm256_loadu_ps(p)));
      z[r] = _mm512_insertf64x4(z[r], _mm256_castps_pd(_mm256_loadu_ps(p + 8 * stride)), 1);
    }
    // Each quarter of z[r] holds columns 0-3 or 4-7 of the half, from row r or r + 8.
    __m512d t[8], u[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      const __m512 a = _mm512_castpd_ps(z[i]), b = _mm512_castpd_ps(z[i + 1]);
      t[i] = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
      t[i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      u[i] = _mm512_unpacklo_pd(t[i], t[i + 2]);
      u[i + 1] = _mm512_unpackhi_pd(t[i], t[i + 2]);
      u[i + 2] = _mm512_unpacklo_pd(t[i + 1], t[i + 3]);
      u[i + 3] = _mm512_unpackhi_pd(t[i + 1], t[i + 3]);
    }
    // Each quarter of u[4g + c] holds column c or c + 4 of four rows, from row 4g or 4g + 8 on.
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      float* const to = out + (half + c) * width;
      _mm512_storeu_pd(to, _mm512_permutex2var_pd(u[c], low, u[4 + c]));
      _mm512_storeu_pd(to + 4 * width, _mm512_permutex2var_pd(u[c], high, u[4 + c]));
    }
  }
}
#endif

/// Transposes out[k][j] = from[j·stride + k] for k < depth, j < cols. A row of `out` has `width`
/// floats (a multiple of the lanes). Columns from `cols` on, and rows from `depth` to the next
/// multiple of the lanes, get any values. Reads at most `readable` >= depth floats of a row of
/// `from`.
template <typename V>
void transpose_block(const float* from, int64_t stride, int64_t depth, int64_t readable,
                     int64_t cols, int64_t width, float* out) {
  for (int64_t k0 = 0; k0 < depth; k0 += V::kLanes) {
    for (int64_t j0 = 0; j0 < width; j0 += V::kLanes) {
      float* const to = out + k0 * width + j0;
      const int64_t rows = std::min<int64_t>(V::kLanes, cols - j0);
      if (rows <= 0) continue;
      const float* const p = from + j0 * stride + k0;
      if (k0 + V::kLanes <= readable && rows == V::kLanes) {
        transpose_square<V>(p, stride, width, to);
        continue;
      }
      V square[V::kLanes];
      for (int j = 0; j < V::kLanes; ++j) {
        square[j] = j < rows ? V::load_partial(p + j * stride, readable - k0) : V(0.0f);
      }
      transpose(square);
      for (int k = 0; k < V::kLanes; ++k) square[k].store(to + k * width);
    }
  }
}

/// TileKernels::dot_rows.
template <typename V>
void dot_rows(const float* a, const float* rows, int64_t stride, int64_t n, int64_t depth,
              float* to) {
  constexpr int kVectors = V::kLanes == 1 ? 1 : 2, kCols = kVectors * V::kLanes;
  alignas(64) float columns[V::kLanes * kCols];
  for (int64_t j = 0; j < n; j += kCols) {
    V chains[kVectors];
    for (V& x : chains) x = V(0.0f);
    for (int64_t k = 0; k < depth; k += V::kLanes) {
      transpose_block<V>(rows + j * stride + k, stride, std::min<int64_t>(V::kLanes, depth - k),
                         depth - k, std::min<int64_t>(kCols, n - j), kCols, columns);
      for (int64_t i = 0; i < std::min<int64_t>(V::kLanes, depth - k); ++i) {
        const V x(a[k + i]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v)
          chains[v] = fma(x, V::load(columns + i * kCols + v * V::kLanes), chains[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v)
      chains[v].store_partial(to + j + v * V::kLanes, n - j - v * V::kLanes);
  }
}

}  // namespace sluice::cpu::internal
