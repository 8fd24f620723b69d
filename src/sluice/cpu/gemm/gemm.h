#pragma once
#include <algorithm>
#include <cstdint>

#include "sluice/cpu/simd/isa.h"

namespace sluice::cpu {

/// A function that gemm() calls with finished elements of C while they are in the L1 cache.
///
/// `run` gets rows [row, row + rows) × columns [col, col + cols) of C and may change them. The
/// block begins at `c`; its rows are `c_stride` floats apart. A block has at most 112 rows and at
/// most the columns of one panel, or of kRowPanels panels if C is one row. `col` is the first
/// column of a panel, a multiple of its width. Every element of the range of gemm() is in exactly
/// one block. The bounds of blocks depend on that range, so the new value of an element must depend
/// on that element only.
struct GemmEpilogue {
  void (*run)(const void* state, float* c, int64_t c_stride, int64_t row, int64_t rows, int64_t col,
              int64_t cols) = nullptr;  ///< Null: no epilogue.
  const void* state = nullptr;
};

/// The arguments of gemm(): C = op(A)·op(B), or C += op(A)·op(B), in f32. op(A) is m × k, op(B) is
/// k × n, C is m × n; sizes may be 0. C overlaps neither A nor B.
///
/// A matrix is row-major; its leading dimension is the number of elements from one stored row to
/// the next. B and C may be in panels instead (panels.h). Panel padding may be read and written
/// like elements; its values have no meaning.
///
/// A weight W in panels is used in three products without conversion. Forward: Y = X·W, with
/// b_panel. Gradient of the input: dX = dY·Wᵀ, with b_panel and trans_b. Gradient of W: dW = Xᵀ·dY,
/// with c_panel and trans_a.
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
  bool accumulate = false;  ///< C += instead of C =: the finished chains are added.
  /// C += instead of C =: the chains begin with the elements of C. Not with `accumulate`.
  bool continues = false;
  /// Each block of the result is stored in the workspace, and only the epilogue sees it. C is read
  /// if `accumulate` or `continues` is set, and never written. Otherwise `c` may be null.
  bool scratch_c = false;
  GemmEpilogue epilogue = {};
};

/// Computes the rows and columns of C in the given ranges. Calls for disjoint ranges may run
/// concurrently, each with its own workspace. If B or C is in panels, or with an epilogue, the
/// column range must begin and end at a panel boundary (or at n). Without stored panels, a
/// panel has 32 columns.
///
/// Bits: an element of op(A)·op(B) is the chain s ← fma(aᵢₖ, bₖⱼ, s) for ascending k from s = +0,
/// or with `continues` from s = cᵢⱼ. It does not depend on the ranges, the strides, the layouts or
/// the instruction set. With `accumulate` the finished chain is added once to C. The epilogue runs
/// last.
void gemm(const GemmArgs& args, int64_t row_begin, int64_t row_end, int64_t col_begin,
          int64_t col_end, float* workspace, Isa isa = current_isa());

/// Returns the bytes of workspace (64-byte aligned) that any call of gemm() with these sizes and
/// flags needs. Pointers and leading dimensions are not read.
int64_t gemm_workspace_bytes(const GemmArgs& args);

/// Multiply-adds, and bytes of operands outside the second cache, with a duration of about a
/// microsecond. The duration of a barrier is 0.3 µs, and a kernel in several tasks needs two.
inline constexpr double kTaskMultiplyAdds = 1 << 16;
inline constexpr double kTaskReadBytes = 96 << 10;

/// Returns the maximum number of tasks of a kernel with a duration of at least a microsecond each,
/// 1 for a short kernel. The kernel computes `multiply_adds` and reads `bytes` once.
inline int64_t tasks_worthwhile(double multiply_adds, double bytes) {
  return static_cast<int64_t>(
      std::clamp(std::max(multiply_adds / kTaskMultiplyAdds, bytes / kTaskReadBytes), 1.0, 1e9));
}

/// The tasks of gemm() compute blocks of C of `rows` × `cols`; the last ones may be smaller.
struct GemmGrid {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_blocks = 0;
  int64_t col_blocks = 0;
  int64_t tasks() const { return row_blocks * col_blocks; }
};

/// Returns a cut into at most `max` (>= 1) tasks, each large enough to be worth handing to another
/// thread. It depends on the sizes, flags and layouts alone. Columns are cut in whole panels, so
/// that two, four or eight workers get about equal shares. Rows are cut only if a block of columns
/// is one panel. A task therefore writes one contiguous range of a C in panels.
GemmGrid gemm_grid(const GemmArgs& args, int64_t max);

namespace internal {
/// gemm() on one instruction set (gemm.isa.cc).
template <Isa kIsa>
void gemm_on(const GemmArgs& args, int64_t row_begin, int64_t row_end, int64_t col_begin,
             int64_t col_end, float* workspace);

/// Columns of a block of C if no panel width determines them.
inline constexpr int64_t kPanel = 32;
/// Maximum number of rows of a block of C that an epilogue gets.
inline constexpr int64_t kRowBlock = 112;
/// Maximum number of panels that are computed together if C is one row.
inline constexpr int64_t kRowPanels = 4;
/// Maximum number of rows of C that share one packed block of op(B), and maximum number of floats
/// of A in these rows (unless kRowBlock rows have more).
inline constexpr int64_t kMaxRows = 4 * kRowBlock;
inline constexpr int64_t kMaxOfA = 3 << 17;
/// Steps of the reduction in a packed block of op(B), if it is copied and if panels are transposed.
/// The block, a strip of A and (for transposed panels) the next block fit in the L1 cache.
inline constexpr int64_t kCopiedDepth = 256;
inline constexpr int64_t kTransposedDepth = 128;

/// Rows of a tile of the transpose of C, including unused ones. Used if C is narrow.
inline constexpr int64_t kFlippedCols = 16;

/// How a product uses its workspace. It depends on sizes, flags and layouts alone.
struct GemmPlan {
  int64_t block_cols = 0;   ///< Columns of a block of C.
  bool packs_b = false;     ///< Blocks of op(B) are copied or transposed into the workspace.
  int64_t depth_block = 0;  ///< Steps of a packed block; without packing, all steps are one block.
  /// The chains of a block of C are kept in the workspace until they are finished.
  bool chains_aside = false;
  int64_t cache_ways = 0;  ///< Associativity of the L1 cache.
  bool flips = false;      ///< Tiles of the transpose of C are computed.
  /// Floats of the parts of the workspace, in this order.
  int64_t packed_floats = 0;
  int64_t chain_floats = 0;
  int64_t flipped_floats = 0;
};
GemmPlan plan_of(const GemmArgs& args);

/// Pieces of work cut into tasks, for balance.
struct Pieces {
  int64_t per_task = 1;
  double cost = 0;  ///< Sum of the load imbalances of 2, 4 and 8 workers; 1 each is best.
};
/// Returns the pieces of a task so that there are at most `max` tasks. Chooses the number that
/// balances 2, 4 and 8 workers best; of equally good numbers, the smallest.
Pieces balance(int64_t pieces, int64_t max);
}  // namespace internal

}  // namespace sluice::cpu
