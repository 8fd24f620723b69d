#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "sluice/base/ids/ids.h"
#include "sluice/cpu/gemm/tiles.h"
#include "sluice/cpu/simd/unit.h"

/// The register tile of the matrix product. Included by gemm.isa.cc only.
namespace sluice::cpu::internal {

/// The shape of a tile. With 16 lanes, 14 × 2 accumulators, 2 vectors of B and a broadcast of A
/// fill 32 registers. With 8 lanes, 6 × 2 accumulators fill 16 registers. With 1 lane, the fused
/// multiply-add is a function call, and the tile only saves loads.
template <typename V>
struct TileShape {
  static constexpr int kRows = V::kLanes == 16 ? 14 : V::kLanes == 8 ? 6 : 4;
  static constexpr int kVectors = V::kLanes == 1 ? 4 : 2;
  static constexpr int kCols = kVectors * V::kLanes;
  /// Rows of a tile that is one vector wide.
  static constexpr int kNarrowRows = V::kLanes == 16 ? 16 : V::kLanes == 8 ? 8 : 4;
};

/// Calls f(vector, row, first column) for each vector of a tile.
template <typename V, int kRows, int kVectors, typename F>
[[gnu::always_inline]] inline void for_all(V (&tile)[kRows][kVectors], F f) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) f(tile[i][v], i, v * V::kLanes);
  }
}

template <typename V, int kRows, int kVectors, bool kRowsApart, bool kAsks>
void compute_tiles(const Tiles& t) {
  constexpr int kLanes = V::kLanes;
  const bool full = t.cols == kVectors * kLanes;
  for (int64_t tile = 0; tile < t.count; ++tile) {
    V acc[kRows][kVectors];
    const int64_t row = tile * kRows;
    // From here on, lanes from `cols` on may hold any value. They are never stored.
    if (t.from == nullptr) {
      for_all(acc, [](V& x, int, int) { x = V(0.0f); });
    } else {
      const float* const from = t.from + row * t.from_stride;
      const int64_t stride = t.from_stride;
      if (full) {
        for_all(acc, [&](V& x, int i, int j) { x = V::load(from + i * stride + j); });
      } else {
        for_all(acc, [&](V& x, int i, int j) {
          x = V::load_partial(from + i * stride + j, t.cols - j);
        });
      }
    }

    const int64_t a_stride = t.a_stride, b_stride = t.b_stride, to_stride = t.to_stride;
    float* const to = t.to + row * to_stride;
    const float* a = t.a + row * (kRowsApart ? a_stride : 1);
    const float* b = t.b;
    const float* ask_of_run = t.ask + (kRowsApart ? 0 : row);
    for (int64_t first = 0; first < t.depth; first += t.run, ask_of_run += t.ask_jump) {
      const float* ask = ask_of_run;
      for (int64_t k = std::min(t.run, t.depth - first); k > 0; --k) {
        V columns[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) columns[v] = V::load(b + v * kLanes);
        if (kAsks) {
#pragma GCC unroll 4
          for (int j = 0; j < kVectors * kLanes; j += 16) __builtin_prefetch(ask + j);
          ask += t.ask_step;
        }
        const float* group = a;
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
          // Compute the address of every fourth row anew in each step, hidden from the compiler.
          // The compiler would keep one address per row and spill them to vector registers.
          if (kRowsApart && i % 4 == 0) {
            group = a + i * a_stride;
            asm("" : "+r"(group));
          }
          const V x(kRowsApart ? group[i % 4 * a_stride] : a[i]);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) acc[i][v] = fma(x, columns[v], acc[i][v]);
        }
        a += kRowsApart ? 1 : a_stride;
        b += b_stride;
      }
      a += t.a_jump;
    }

    if (t.add != nullptr) {
      const float* const add = t.add + row * t.add_stride;
      const int64_t stride = t.add_stride;
      if (full) {
        for_all(acc, [&](V& x, int i, int j) { x = V::load(add + i * stride + j) + x; });
      } else {
        for_all(acc, [&](V& x, int i, int j) {
          x = V::load_partial(add + i * stride + j, t.cols - j) + x;
        });
      }
    }
    if (full) {
      for_all(acc, [&](V& x, int i, int j) { x.store(to + i * to_stride + j); });
    } else if (t.pads) {
      for_all(acc, [&](V& x, int i, int j) {
        select(V::Mask::first(t.cols - j), x, V(0.0f)).store(to + i * to_stride + j);
      });
    } else {
      for_all(acc,
              [&](V& x, int i, int j) { x.store_partial(to + i * to_stride + j, t.cols - j); });
    }
  }
}

/// The arguments of row_by_panels(). Column j of panel p of step k is
/// b[p·panel_step + k·b_stride + j].
struct RowByPanels {
  const float* a = nullptr;
  int64_t a_step = 1;
  int64_t depth = 0;
  const float* b = nullptr;
  int64_t b_stride = 0;
  int64_t panel_step = 0;
  float* to = nullptr;
};

/// Computes the chains of a row in the columns of `kPanels` panels.
template <typename V, int kPanels>
void row_by_panels(const RowByPanels& r) {
  constexpr int kVectors = kPanelCols / V::kLanes;
  V acc[kPanels][kVectors];
  for_all(acc, [](V& x, int, int) { x = V(0.0f); });
  const float* a = r.a;
  const float* b = r.b;
  const int64_t a_step = r.a_step, b_stride = r.b_stride, panel_step = r.panel_step;
  for (int64_t k = r.depth; k > 0; --k) {
    const V x(*a);
    for_all(acc, [&](V& y, int p, int j) { y = fma(x, V::load(b + p * panel_step + j), y); });
    a += a_step;
    b += b_stride;
  }
  for_all(acc, [&](V& x, int p, int j) { x.store(r.to + p * kPanelCols + j); });
}

template <typename V, int kVectors, bool kRowsApart, bool kAsks, int... kRows>
constexpr std::array<TileFn, sizeof...(kRows)> tiles_of(std::integer_sequence<int, kRows...>) {
  return {compute_tiles<V, kRows + 1, kVectors, kRowsApart, kAsks>...};
}

/// Returns the kernel for tiles of `rows` rows and TileShape<V>::kVectors vectors, or one vector if
/// `narrow`.
template <typename V>
TileFn tile_fn(int64_t rows, bool narrow, bool rows_apart, bool asks) {
  using S = TileShape<V>;
  using Wide = std::make_integer_sequence<int, S::kRows>;
  using Narrow = std::make_integer_sequence<int, S::kNarrowRows>;
  static constexpr std::array<TileFn, S::kRows> kWide[] = {
      tiles_of<V, S::kVectors, false, false>(Wide{}), tiles_of<V, S::kVectors, false, true>(Wide{}),
      tiles_of<V, S::kVectors, true, false>(Wide{}), tiles_of<V, S::kVectors, true, true>(Wide{})};
  static constexpr std::array<TileFn, S::kNarrowRows> kNarrow[] = {
      tiles_of<V, 1, false, false>(Narrow{}), tiles_of<V, 1, false, true>(Narrow{}),
      tiles_of<V, 1, true, false>(Narrow{}), tiles_of<V, 1, true, false>(Narrow{})};
  const int kind = 2 * rows_apart + asks;
  return narrow ? at(kNarrow[kind], rows - 1) : at(kWide[kind], rows - 1);
}

}  // namespace sluice::cpu::internal
