#pragma once
#include <cstdint>

#include "sluice/cpu/simd/isa.h"

/// The register tiles of matrix products, for every instruction set. gemm() computes a product;
/// kernels that do more than a product use the tiles themselves.
namespace sluice::cpu {

/// The arguments for a column of `count` tiles, one below the other. Each tile computes `depth`
/// steps of the chains of its rows.
struct Tiles {
  int64_t count = 1;
  int64_t depth = 0;
  /// Steps of a run. An operand may be elsewhere in the next run.
  int64_t run = 32;
  /// op(A): row i of step k is a[i + k·a_stride] or, with `rows_apart`, a[i·a_stride + k]. Each run
  /// begins `a_jump` floats further on.
  const float* a = nullptr;
  int64_t a_stride = 0;
  int64_t a_jump = 0;
  /// op(B): the vectors of step k begin at b + k·b_stride; all their lanes are readable.
  const float* b = nullptr;
  int64_t b_stride = 0;
  /// If the kernel prefetches, each step prefetches one tile width of floats at `ask` from the L2
  /// cache.
  /// `ask` advances by `ask_step` each step; each run begins `ask_jump` after the one before it.
  const float* ask = nullptr;
  int64_t ask_step = 0;
  int64_t ask_jump = 0;
  const float* from = nullptr;  ///< Partial chains to continue; null: begin at zero.
  int64_t from_stride = 0;
  const float* add = nullptr;  ///< Added to the finished chains; null: nothing.
  int64_t add_stride = 0;
  float* to = nullptr;  ///< Destination of the chains.
  int64_t to_stride = 0;
  int64_t cols = 0;  ///< Columns of C in the tile.
  /// Rows of `to` are whole vectors: lanes from `cols` on become zero. Otherwise they are not
  /// written.
  bool pads = false;
};
using TileFn = void (*)(const Tiles&);

/// Columns of a panel of B.
inline constexpr int64_t kPanelCols = 32;

/// The tiles of an instruction set.
struct TileKernels {
  int64_t rows = 0;         ///< Maximum number of rows of a tile.
  int64_t narrow_rows = 0;  ///< Maximum number of rows of a tile that is one vector wide.
  int64_t cols = 0;         ///< Columns of a tile; divides kPanelCols.
  int64_t narrow_cols = 0;  ///< Columns of one vector.
  /// Returns the tile of `rows` rows. `rows_apart`: how `Tiles::a_stride` is meant.
  TileFn (*find)(int64_t rows, bool narrow, bool rows_apart) = nullptr;
  /// Copies panel[k·32 + j] = from[k·stride + j] for k < depth, j < cols <= 32; other columns are
  /// 0.
  void (*copy)(const float* from, int64_t stride, int64_t depth, int64_t cols,
               float* panel) = nullptr;
  /// Transposes panel[k·32 + j] = from[j·stride + k] for k < depth, j < cols <= 32. Other columns,
  /// and rows from `depth` to the next multiple of 16, get any values.
  void (*transpose)(const float* from, int64_t stride, int64_t depth, int64_t cols,
                    float* panel) = nullptr;
  /// Computes the products of one row and the rows of a matrix where they lie:
  /// to[j] = the chain of a[k]·rows[j·stride + k] for ascending k < depth, for j < n.
  void (*dot_rows)(const float* a, const float* rows, int64_t stride, int64_t n, int64_t depth,
                   float* to) = nullptr;
};
TileKernels tile_kernels(Isa isa = current_isa());

/// C = A·B or, with `continues`, the chains of C go on: c ← fma(a, b, c) for ascending k. C is
/// m × n with n <= kPanelCols, and B is a panel of k rows.
struct PanelProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const float* a = nullptr;  ///< Element (i, k) is a[i·a_row + k·a_col]; one of them is 1.
  int64_t a_row = 0;
  int64_t a_col = 1;
  const float* b = nullptr;
  int64_t b_stride = kPanelCols;  ///< All lanes of a tile's last vector must be readable.
  float* c = nullptr;
  int64_t c_stride = 0;
  bool continues = false;
};
void multiply(const TileKernels& tiles, const PanelProduct& p);

namespace internal {
template <Isa kIsa>
struct TileList {
  static TileKernels get();
};
}  // namespace internal

}  // namespace sluice::cpu
