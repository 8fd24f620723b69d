#pragma once
#include <cstdint>

#include "sluice/cpu/simd/isa.h"

namespace sluice::cpu {

/// What is done to finished elements of C while they are in the first cache.
///
/// `run` gets rows [row, row + rows) × columns [col, col + cols) of C, whose first element is at `c`
/// and whose rows lie `c_stride` floats apart; it may change them. A block has at most 112 rows and
/// at most the columns of one panel, `col` is where a panel begins (a multiple of its width), and
/// every element of a call's range is handed over exactly once. The blocks' bounds follow from the
/// range given to gemm(), so what `run` does to an element must depend on that element only.
struct GemmEpilogue {
  void (*run)(const void* state, float* c, int64_t c_stride, int64_t row, int64_t rows, int64_t col,
              int64_t cols) = nullptr;  ///< Null: nothing is done.
  const void* state = nullptr;
};

/// C = op(A)·op(B), or C += op(A)·op(B), in f32. op(A) is m × k, op(B) is k × n, C is m × n.
/// Matrices are row-major, where a leading dimension counts the elements from one stored row to the
/// next, or (B and C) in panels (panels.h), whose padding is read and written with the rest of a
/// vector and means nothing. C overlaps neither A nor B. Sizes may be 0.
///
/// One weight W in panels serves forward (Y = X·W: b_panel), the gradient of the input
/// (dX = dY·Wᵀ: b_panel and trans_b) and, as C, its own gradient (dW = Xᵀ·dY: c_panel and trans_a).
struct GemmArgs {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const float* a = nullptr;
  int64_t lda = 0;
  bool trans_a = false;  ///< A is stored as k × m.
  const float* b = nullptr;
  int64_t ldb = 0;
  bool trans_b = false;  ///< B is stored as n × k.
  int64_t b_panel = 0;   ///< B, as stored, is in panels of this width, 16 or 32; 0: row-major.
  float* c = nullptr;
  int64_t ldc = 0;
  int64_t c_panel = 0;      ///< C is in panels of this width, 16 or 32; 0: row-major.
  bool accumulate = false;  ///< C += instead of C =.
  /// The result goes into the workspace, block by block, and only the epilogue sees it. With
  /// `accumulate` C is read and keeps what it has; else `c` may be null.
  bool scratch_c = false;
  GemmEpilogue epilogue = {};
};

/// Computes the rows and columns of C in the given ranges; calls for disjoint ranges may run at
/// once, each with a workspace of its own. Where B or C is in panels, or there is an epilogue,
/// columns begin and end where a panel does (or at n), panels of 32 columns where none is stored.
///
/// Bits: an element of op(A)·op(B) is the chain s ← fma(aᵢₖ, bₖⱼ, s) for ascending k from s = +0,
/// whatever the ranges, the strides, the layouts and the instruction set. For C += the finished
/// chain is added once to C. Then comes the epilogue.
void gemm(const GemmArgs& args, int64_t row_begin, int64_t row_end, int64_t col_begin,
          int64_t col_end, float* workspace, Isa isa = current_isa());

/// Bytes of workspace (64-byte aligned) that any call of gemm() with these sizes and flags needs;
/// pointers and leading dimensions are not read.
int64_t gemm_workspace_bytes(const GemmArgs& args);

/// How C is cut into tasks of gemm(): blocks of `rows` × `cols`, the last ones smaller.
struct GemmGrid {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_blocks = 0;
  int64_t col_blocks = 0;
  int64_t tasks() const { return row_blocks * col_blocks; }
};

/// A cut into at most `most` tasks (>= 1), each worth handing over to another thread; from the
/// sizes, flags and layouts alone. Columns are cut in whole panels, so that two, four or eight
/// workers get about as many; rows only where a block of columns is one panel. So a task writes one
/// stretch of a C in panels.
GemmGrid gemm_grid(const GemmArgs& args, int64_t most);

namespace internal {
/// gemm() on one instruction set (gemm.isa.cc).
template <Isa kIsa>
void gemm_on(const GemmArgs& args, int64_t row_begin, int64_t row_end, int64_t col_begin,
             int64_t col_end, float* workspace);

/// Columns of a block where no panel says it.
inline constexpr int64_t kPanel = 32;
/// Most rows of a block of C that an epilogue gets.
inline constexpr int64_t kRowBlock = 112;
/// Rows for which a block of op(B) is packed once, and floats of A in them (unless kRowBlock rows
/// have more).
inline constexpr int64_t kMostRows = 4 * kRowBlock;
inline constexpr int64_t kMostOfA = 3 << 17;
/// Steps of the reduction in a packed block of op(B): it, a strip of A and (where panels are
/// transposed) what is packed next stay in the first cache.
inline constexpr int64_t kCopiedDepth = 256;
inline constexpr int64_t kTransposedDepth = 128;

/// Rows of a tile of the transpose of C, empty ones counted, where C is narrow.
inline constexpr int64_t kFlippedCols = 16;

/// How a product goes through its workspace, from sizes, flags and layouts.
struct GemmPlan {
  int64_t block_cols = 0;   ///< Columns of a block of C.
  bool packs_b = false;     ///< Blocks of op(B) are copied or transposed into the workspace,
  int64_t depth_block = 0;  ///< in blocks of so many steps (else: all of them at once).
  /// The chains of a block of C live in the workspace until they are finished.
  bool chains_aside = false;
  int64_t cache_ways = 0;  ///< Of the first cache.
  bool flips = false;      ///< Tiles of the transpose of C are computed.
  /// Parts of the workspace, in this order.
  int64_t packed_floats = 0;
  int64_t chain_floats = 0;
  int64_t flipped_floats = 0;
};
GemmPlan plan_of(const GemmArgs& args);
}  // namespace internal

}  // namespace sluice::cpu
