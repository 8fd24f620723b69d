#include "sluice/cpu/gemm/tiles.h"

#include <algorithm>

namespace sluice::cpu {

TileKernels tile_kernels(Isa isa) {
  TileKernels tiles;
  with_kernels<internal::TileList>(isa, [&](auto list) { tiles = list.get(); });
  return tiles;
}

void multiply(const TileKernels& tiles, const PanelProduct& p) {
  if (p.m == 0) return;
  const bool rows_apart = p.a_col == 1;
  Tiles t;
  t.depth = t.run = p.k;
  t.a_stride = rows_apart ? p.a_row : p.a_col;
  t.b_stride = p.b_stride;
  t.from_stride = t.to_stride = p.c_stride;
  for (int64_t j = 0; j < p.n; j += tiles.cols) {
    t.cols = std::min(tiles.cols, p.n - j);
    t.b = p.b + j;
    const bool narrow = t.cols <= tiles.narrow_cols;
    const int64_t max = narrow ? tiles.narrow_rows : tiles.rows;
    const int64_t strips = (p.m + max - 1) / max;
    // The first `higher` strips have one row more.
    const int64_t height = p.m / strips, higher = p.m - strips * height;
    const auto compute = [&](int64_t row, int64_t count, int64_t rows) {
      if (count == 0) return;
      t.count = count;
      t.a = p.a + row * p.a_row;
      t.to = p.c + row * p.c_stride + j;
      t.from = p.continues ? t.to : nullptr;
      tiles.find(rows, narrow, rows_apart)(t);
    };
    compute(0, higher, height + 1);
    compute(higher * (height + 1), strips - higher, height);
  }
}

}  // namespace sluice::cpu
