#include <algorithm>
#include <array>
#include <utility>

#include "sluice/cpu/gemm.h"
#include "sluice/cpu/unit.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
constexpr int kLanes = V::kLanes;
/// The register tile: rows, and vectors per row. 14 × 2 accumulators, 2 of B and a broadcast fill
/// 32 registers, 6 × 2 fill 16. Without vectors the fused multiply-add is a call and the tile only
/// saves loads.
constexpr int kTileRows = kLanes == 16 ? 14 : kLanes == 8 ? 6 : 4;
constexpr int kTileVectors = kLanes == 1 ? 4 : 2;
constexpr int kTileCols = kTileVectors * kLanes;
static_assert(kTileCols <= kPanel && kPanel % kTileCols == 0);
static_assert(kTileRows <= kLanes || kLanes == 1,
              "packing writes a row of the tile with one store");

/// What a tile computes: `depth` steps of the chains of its rows and vectors.
struct Tile {
  int64_t depth = 0;
  /// op(A): row i of step k is a[i + k·a_stride] or, where rows are apart, a[i·a_stride + k].
  const float* a = nullptr;
  int64_t a_stride = 0;
  /// op(B): step k is the vectors from b + k·b_stride on; all lanes are readable.
  const float* b = nullptr;
  int64_t b_stride = 0;
  const float* from = nullptr;  ///< Partial chains to continue, or null: from zero.
  int64_t from_stride = 0;
  float* to = nullptr;  ///< The chains go here,
  int64_t to_stride = 0;
  bool add = false;  ///< or are added to what is here.
  int64_t cols = 0;  ///< Columns of `from` and `to` that exist.
};

template <int kRows, int kVectors, bool kRowsApart>
void compute(const Tile& t) {
  V acc[kRows][kVectors];
  const auto for_all = [&](auto f) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) f(acc[i][v], i, v * kLanes);
    }
  };
  const bool full = t.cols == kVectors * kLanes;
  if (t.from == nullptr) {
    for_all([](V& x, int, int) { x = V(0.0f); });
  } else if (full) {
    for_all([&](V& x, int i, int j) { x = V::load(t.from + i * t.from_stride + j); });
  } else {
    for_all([&](V& x, int i, int j) {
      x = V::load_partial(t.from + i * t.from_stride + j, t.cols - j);
    });
  }

  const float* a = t.a;
  const float* b = t.b;
  const int64_t a_stride = t.a_stride;
  const int64_t b_stride = t.b_stride;
  for (int64_t k = t.depth; k > 0; --k) {
    V row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = V::load(b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V x(kRowsApart ? a[i * a_stride] : a[i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[i][v] = fma(x, row[v], acc[i][v]);
    }
    a += kRowsApart ? 1 : a_stride;
    b += b_stride;
  }

  float* const to = t.to;
  const int64_t to_stride = t.to_stride;
  if (full && !t.add) {
    for_all([&](V& x, int i, int j) { x.store(to + i * to_stride + j); });
  } else if (full) {
    for_all([&](V& x, int i, int j) {
      float* p = to + i * to_stride + j;
      (V::load(p) + x).store(p);
    });
  } else {
    for_all([&](V& x, int i, int j) {
      float* p = to + i * to_stride + j;
      if (t.add) x = V::load_partial(p, t.cols - j) + x;
      x.store_partial(p, t.cols - j);
    });
  }
}

using TileFn = void (*)(const Tile&);

template <int kVectors, bool kRowsApart, int... kRows>
constexpr std::array<TileFn, sizeof...(kRows)> tiles_of(std::integer_sequence<int, kRows...>) {
  return {compute<kRows + 1, kVectors, kRowsApart>...};
}
template <int kVectors, bool kRowsApart>
constexpr auto kTilesOf =
    tiles_of<kVectors, kRowsApart>(std::make_integer_sequence<int, kTileRows>{});

/// The kernel of a tile.
TileFn tile_fn(int64_t rows, bool narrow, bool rows_apart) {
  const auto& tiles =
      narrow ? (rows_apart ? kTilesOf<1, true> : kTilesOf<1, false>)
             : (rows_apart ? kTilesOf<kTileVectors, true> : kTilesOf<kTileVectors, false>);
  return tiles[static_cast<size_t>(rows - 1)];
}

/// Part `i` of [0, size) in `parts` nearly equal ones: its beginning.
int64_t part_begin(int64_t size, int64_t parts, int64_t i) {
  return size / parts * i + std::min(size % parts, i);
}

/// out[k][i] = op(A)(row + i, first + k) for i < rows, k < depth. May write kSlack floats past the
/// end.
void pack_a(const GemmArgs& args, int64_t row, int64_t rows, int64_t first, int64_t depth,
            float* out) {
  if (args.trans_a) {
    for (int64_t k = 0; k < depth; ++k) {
      const float* p = args.a + (first + k) * args.lda + row;
      for (int64_t i = 0; i < rows; i += kLanes)
        V::load_partial(p + i, rows - i).store(out + k * rows + i);
    }
    return;
  }
  const float* p = args.a + row * args.lda + first;
  for (int64_t i0 = 0; i0 < rows; i0 += kLanes) {
    const int64_t group = std::min<int64_t>(kLanes, rows - i0);
    for (int64_t k0 = 0; k0 < depth; k0 += kLanes) {
      V square[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        square[i] = i < group ? V::load_partial(p + (i0 + i) * args.lda + k0, depth - k0) : V(0.0f);
      }
      transpose(square);
      const int64_t steps = std::min<int64_t>(kLanes, depth - k0);
      for (int64_t k = 0; k < steps; ++k) square[k].store(out + (k0 + k) * rows + i0);
    }
  }
}

/// out[k][j] = op(B)(first + k, col + j) for j < cols, k < depth, in rows of `width` floats; zeros
/// above cols.
void pack_b(const GemmArgs& args, int64_t first, int64_t depth, int64_t col, int64_t cols,
            int64_t width, float* out) {
  if (!args.trans_b) {
    for (int64_t k = 0; k < depth; ++k) {
      const float* p = args.b + (first + k) * args.ldb + col;
      for (int64_t j = 0; j < width; j += kLanes)
        V::load_partial(p + j, cols - j).store(out + k * width + j);
    }
    return;
  }
  const float* p = args.b + col * args.ldb + first;
  for (int64_t j0 = 0; j0 < width; j0 += kLanes) {
    for (int64_t k0 = 0; k0 < depth; k0 += kLanes) {
      V square[kLanes];
      for (int j = 0; j < kLanes; ++j) {
        square[j] =
            j0 + j < cols ? V::load_partial(p + (j0 + j) * args.ldb + k0, depth - k0) : V(0.0f);
      }
      transpose(square);
      const int64_t steps = std::min<int64_t>(kLanes, depth - k0);
      for (int64_t k = 0; k < steps; ++k) square[k].store(out + (k0 + k) * width + j0);
    }
  }
}

/// Whether tiles read A packed. Where it lies it costs nothing before the first tile, but more in
/// each.
bool worth_packing_a(int64_t cols) { return cols > 4 * kTileCols; }

/// Whether tiles read rows of B where they lie: a panel is read by few strips, or all of B stays in
/// the first cache.
bool reads_b_in_place(const GemmArgs& args, int64_t strips) {
  return !args.trans_b && (strips <= 3 || args.k <= 32);
}

void fill_without_depth(const GemmArgs& args, int64_t row_begin, int64_t row_end, int64_t col_begin,
                        int64_t col_end) {
  for (int64_t i = row_begin; i < row_end; ++i) {
    for (int64_t j = col_begin; j < col_end; ++j) {
      float& c = args.c[i * args.ldc + j];
      c = args.accumulate ? c + 0.0f : 0.0f;
    }
  }
}

/// The rows of a block that one tile computes.
struct Strip {
  int64_t begin = 0;
  int64_t height = 0;
};

/// One call of gemm(): the same loops as in gemm_on, with what stays the same inside them.
class Product {
 public:
  Product(const GemmArgs& args, int64_t col_begin, int64_t col_end, float* workspace)
      : args_(args), col_begin_(col_begin), col_end_(col_end) {
    const int64_t most_depth = std::min(args.k, kDepthBlock);
    panel_ = workspace;
    block_ = panel_ + most_depth * kPanel;
    chains_ = block_ + (std::min(args.m, kRowBlock) * most_depth + kSlack + 15) / 16 * 16;
    keeps_chains_apart_ = args.accumulate && args.k > kDepthBlock;
    packs_a_ = worth_packing_a(col_end - col_begin);
  }

  void compute_rows(int64_t row, int64_t rows) {
    row_ = row;
    strip_count_ = (rows + kTileRows - 1) / kTileRows;
    for (int64_t s = 0; s < strip_count_; ++s) {
      const int64_t begin = part_begin(rows, strip_count_, s);
      strips_[s] = {begin, part_begin(rows, strip_count_, s + 1) - begin};
    }
    for (int64_t first = 0; first < args_.k; first += kDepthBlock) {
      compute_depth(first, std::min(kDepthBlock, args_.k - first));
    }
  }

 private:
  void compute_depth(int64_t first, int64_t depth) {
    first_ = first;
    tile_.depth = depth;
    const bool last = first + depth == args_.k;
    tile_.add = args_.accumulate && last;
    reads_apart_ = keeps_chains_apart_ && first > 0;
    writes_apart_ = keeps_chains_apart_ && !last;
    for (int64_t s = 0; s < strip_count_ && packs_a_; ++s) {
      const auto [begin, height] = strips_[s];
      pack_a(args_, row_ + begin, height, first, depth, block_ + begin * depth);
    }

    int64_t col = col_begin_;
    if (reads_b_in_place(args_, strip_count_)) {
      const int64_t end = col_begin_ + (col_end_ - col_begin_) / kTileCols * kTileCols;
      tile_.b_stride = args_.ldb;
      tile_.cols = kTileCols;
      for (int64_t s = 0; s < strip_count_; ++s) {
        for (col = col_begin_; col < end; col += kTileCols) {
          tile_.b = args_.b + first * args_.ldb + col;
          compute_tile(strips_[s], col);
        }
      }
    }
    for (; col < col_end_; col += kTileCols) {
      tile_.cols = std::min<int64_t>(kTileCols, col_end_ - col);
      tile_.b = panel_;
      tile_.b_stride = tile_.cols <= kLanes ? kLanes : kTileCols;
      pack_b(args_, first, depth, col, tile_.cols, tile_.b_stride, panel_);
      for (int64_t s = 0; s < strip_count_; ++s) compute_tile(strips_[s], col);
    }
  }

  void compute_tile(Strip strip, int64_t col) {
    const int64_t row = row_ + strip.begin;
    if (packs_a_) {
      tile_.a = block_ + strip.begin * tile_.depth;
      tile_.a_stride = strip.height;
    } else {
      tile_.a =
          args_.trans_a ? args_.a + first_ * args_.lda + row : args_.a + row * args_.lda + first_;
      tile_.a_stride = args_.lda;
    }
    float* const c = args_.c + row * args_.ldc + col;
    const int64_t apart_stride = col_end_ - col_begin_;
    float* const apart = chains_ + strip.begin * apart_stride + (col - col_begin_);
    tile_.from = first_ == 0 ? nullptr : reads_apart_ ? apart : c;
    tile_.from_stride = reads_apart_ ? apart_stride : args_.ldc;
    tile_.to = writes_apart_ ? apart : c;
    tile_.to_stride = writes_apart_ ? apart_stride : args_.ldc;
    tile_fn(strip.height, tile_.cols <= kLanes, !packs_a_ && !args_.trans_a)(tile_);
  }

  const GemmArgs& args_;
  const int64_t col_begin_, col_end_;
  float *panel_, *block_, *chains_;  ///< In the workspace: a panel of B, a block of A, chains.
  bool packs_a_, keeps_chains_apart_, reads_apart_ = false, writes_apart_ = false;
  int64_t row_ = 0, first_ = 0;  ///< Where the block begins.
  int64_t strip_count_ = 0;
  Strip strips_[kRowBlock / kTileRows + 1];
  Tile tile_;
};

}  // namespace

template <>
void gemm_on<kUnitIsa>(const GemmArgs& args, int64_t row_begin, int64_t row_end, int64_t col_begin,
                       int64_t col_end, float* workspace) {
  const int64_t rows = row_end - row_begin;
  if (rows <= 0 || col_end <= col_begin) return;
  if (args.k == 0) return fill_without_depth(args, row_begin, row_end, col_begin, col_end);
  Product product(args, col_begin, col_end, workspace);
  const int64_t blocks = (rows + kRowBlock - 1) / kRowBlock;
  for (int64_t r = 0; r < blocks; ++r) {
    const int64_t begin = part_begin(rows, blocks, r);
    product.compute_rows(row_begin + begin, part_begin(rows, blocks, r + 1) - begin);
  }
}

}  // namespace sluice::cpu::internal
