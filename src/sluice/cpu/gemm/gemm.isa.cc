#include <algorithm>

#include "sluice/cpu/gemm/gemm.h"
#include "sluice/cpu/gemm/gemm_pack.h"
#include "sluice/cpu/gemm/gemm_tile.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
using S = TileShape<V>;

/// Steps of the reduction between the prefetch of a row of A or B from the L2 cache and its use.
constexpr int64_t kAAhead = 8;
constexpr int64_t kBAhead = 16;

/// Some rows of C in the columns of one panel.
struct Block {
  int64_t row = 0, rows = 0;
  float* c = nullptr;  ///< First element of the block in C.
  int64_t c_stride = 0;
  float* result = nullptr;  ///< Destination of finished elements.
  int64_t result_stride = 0;
  float* chains = nullptr;  ///< Unfinished elements, in rows of kPanel floats; null: in `result`.
};

/// When tiles prefetch. kAlways: they read data that is not in the L1 cache. kInTheEnd: their data
/// is in the L1 cache, and the last tiles prefetch the block that is packed next.
enum class Asks { kNever, kAlways, kInTheEnd };

/// Some steps of the reduction: the rows of op(B), and the address to prefetch meanwhile.
struct Depth {
  int64_t first = 0, steps = 0;
  bool last = false;
  const float* b = nullptr;
  int64_t b_stride = 0;
  Asks asks = Asks::kNever;
  const float* ask = nullptr;
  int64_t ask_step = 0, ask_jump = 0;
};

/// One call of gemm().
class Product {
 public:
  Product(const GemmArgs& args, float* workspace)
      : args_(args),
        plan_(plan_of(args)),
        flips_(plan_.flips && V::kLanes > 1),
        tile_rows_(flips_ ? kFlippedCols : S::kRows),
        packed_(workspace),
        chains_(workspace + plan_.packed_floats),
        flipped_(chains_ + plan_.chain_floats) {}

  void run(int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end) {
    if (is_row()) col_begin = compute_row(col_begin, col_end);
    packs_b_ = plan_.packs_b && (args_.trans_b || row_end - row_begin > 3 * S::kRows);
    const int64_t small = kRowBlock / tile_rows_ * tile_rows_;
    // Pack op(B) once for rows of A that fit in the L2 cache. Cut the rows into about equal parts.
    const int64_t rows = row_end - row_begin;
    const int64_t fit = std::clamp(kMaxOfA / std::max<int64_t>(args_.k, 1), kRowBlock, kMaxRows);
    const int64_t parts = (rows + fit - 1) / fit;
    const int64_t tiles = (rows + parts * tile_rows_ - 1) / (parts * tile_rows_);
    const int64_t max =
        args_.scratch_c ? small : std::min(tiles, kMaxRows / tile_rows_) * tile_rows_;
    // The rows of an epilogue must fit in the L1 cache.
    block_rows_ = args_.epilogue.run != nullptr ? small : max;
    for (first_row_ = row_begin; first_row_ < row_end; first_row_ += max) {
      rows_ = std::min(max, row_end - first_row_);
      for (col_ = col_begin; col_ < col_end; col_ += plan_.block_cols) {
        cols_ = std::min(plan_.block_cols, col_end - col_);
        compute_columns();
      }
    }
  }

 private:
  /// Whether C is a row that compute_row() computes.
  bool is_row() const {
    if (args_.m != 1 || args_.k == 0 || args_.c_panel > 0 || args_.accumulate || args_.continues)
      return false;
    if (args_.trans_b) return args_.b_panel == 0 && !args_.trans_a;
    return V::kLanes > 1 && (args_.b_panel == 0 || args_.b_panel == kPanel);
  }

  /// Computes the columns of a row up to the last ones, which it returns: fewer than two panels
  /// unless B is transposed. The chains of one panel are too few to cover the latency of a
  /// multiply-add.
  int64_t compute_row(int64_t begin, int64_t end) const {
    constexpr int64_t kMax = (V::kLanes == 16 ? kRowPanels : 2) * kPanel;
    const int64_t min = args_.trans_b ? 1 : 2 * kPanel;
    int64_t col = begin, cols = 0;
    for (; end - col >= min; col += cols) {
      const bool wide = end - col >= kMax;
      cols = wide ? kMax : std::min(end - col, 2 * kPanel);
      float* const to = args_.scratch_c ? chains_ : args_.c + col;
      if (args_.trans_b) {
        dot_rows<V>(args_.a, args_.b + col * args_.ldb, args_.ldb, cols, args_.k, to);
      } else {
        const int64_t panel_step = args_.b_panel > 0 ? args_.k * kPanel : kPanel;
        (wide ? row_by_panels<V, kMax / kPanel>
              : row_by_panels<V, 2>)({.a = args_.a,
                                      .a_step = args_.trans_a ? args_.lda : 1,
                                      .depth = args_.k,
                                      .b = args_.b + col * (args_.b_panel > 0 ? args_.k : 1),
                                      .b_stride = stored_stride(),
                                      .panel_step = panel_step,
                                      .to = to});
      }
      if (args_.epilogue.run != nullptr)
        args_.epilogue.run(args_.epilogue.state, to, args_.ldc, 0, 1, col, cols);
    }
    return col;
  }

  void compute_columns() {
    // At most the last rows, less than a vector, are not flipped.
    const bool all_flipped = flips_ && rows_ % V::kLanes == 0;
    const bool packs = !all_flipped && (packs_b_ || (args_.b_panel == 0 && read_cols() != cols_));
    const int64_t max = std::max<int64_t>(packs ? plan_.depth_block : args_.k, 1);
    for (int64_t first = 0; first == 0 || first < args_.k; first += max) {
      const Depth depth = depth_of(first, std::min(max, args_.k - first), packs);
      for (int64_t begin = 0; begin < rows_; begin += block_rows_) {
        const Block block = block_of(begin, std::min(block_rows_, rows_ - begin));
        const int64_t flipped = flips_ ? block.rows / V::kLanes * V::kLanes : 0;
        if (first == 0 && flipped > 0) compute_flipped(block, flipped);
        if (flipped < block.rows) compute_rows(block, flipped, depth);
        if (depth.last) finish(block);
      }
    }
  }

  /// Returns the block of `rows` rows from `begin` on, counted from first_row_.
  Block block_of(int64_t begin, int64_t rows) const {
    Block block{.row = first_row_ + begin, .rows = rows};
    if (args_.c == nullptr) {
      // Only the epilogue sees the result.
    } else if (args_.c_panel > 0) {
      block.c = args_.c + col_ * args_.m + block.row * args_.c_panel;
      block.c_stride = args_.c_panel;
    } else {
      block.c = args_.c + block.row * args_.ldc + col_;
      block.c_stride = args_.ldc;
    }
    if (plan_.chains_aside) block.chains = chains_ + begin * kPanel;
    block.result = args_.scratch_c ? block.chains : block.c;
    block.result_stride = args_.scratch_c ? kPanel : block.c_stride;
    return block;
  }

  Depth depth_of(int64_t first, int64_t steps, bool packs) {
    Depth d{.first = first, .steps = steps, .last = first + steps == args_.k};
    if (packs) {
      pack(first, steps);
      d.b = packed_;
      d.b_stride = read_cols();
    } else {
      d.b = b_in_place(first);
      d.b_stride = stored_stride();
    }
    // The next packed block: the next steps of these columns, or the first steps of the next
    // columns.
    const int64_t next = d.last ? 0 : first + steps, next_col = d.last ? col_ + kPanel : col_;
    d.asks = packs ? Asks::kInTheEnd : Asks::kAlways;
    if (args_.trans_a) {
      // With more than 64 steps, the rows of A exceed the first-level TLB.
      d.asks = steps > 64 ? Asks::kAlways : Asks::kNever;
      d.ask = args_.a + (first + kAAhead) * args_.lda;
      d.ask_step = args_.lda;
      d.ask_jump = 32 * args_.lda;
    } else if (packs && args_.trans_b && args_.b_panel > 0) {
      d.ask = args_.b + next * args_.n + next_col * args_.b_panel;
      d.ask_step = args_.b_panel;
      d.ask_jump = args_.n * args_.b_panel;
    } else if (packs && args_.trans_b) {
      d.ask = args_.b + next_col * args_.ldb + next;
      d.ask_step = args_.ldb;
      d.ask_jump = 32;
    } else {
      d.ask = packs ? args_.b + next * args_.ldb + next_col : d.b + kBAhead * d.b_stride;
      d.ask_step = stored_stride();
      d.ask_jump = 32 * d.ask_step;
    }
    return d;
  }

  /// Computes `depth` for the block's rows from `begin` on.
  void compute_rows(const Block& block, int64_t begin, const Depth& depth) const {
    if (args_.k == 0) return fill_without_depth(block);
    Tiles t;
    t.depth = depth.steps;
    t.a_stride = args_.lda;
    t.b_stride = depth.b_stride;
    t.ask_step = depth.ask_step;
    t.ask_jump = depth.ask_jump;
    const bool aside = block.chains != nullptr;
    float* const to = aside && !depth.last ? block.chains : block.result;
    const bool begins = depth.first == 0;
    const float* const from = begins  ? (args_.continues ? block.c : nullptr)
                              : aside ? block.chains
                                      : block.result;
    t.from_stride = begins ? block.c_stride : aside ? kPanel : block.result_stride;
    t.to_stride = aside && !depth.last ? kPanel : block.result_stride;
    t.add_stride = block.c_stride;
    t.pads = args_.c_panel > 0 || to == block.chains;
    for (int64_t j = 0; j < cols_; j += S::kCols) {
      t.cols = std::min<int64_t>(S::kCols, cols_ - j);
      t.b = depth.b + j;
      const bool narrow = t.cols <= V::kLanes;
      // Use 32 bits, because they divide faster.
      const auto max = static_cast<uint32_t>(max_rows(narrow));
      const auto rows = static_cast<uint32_t>(block.rows - begin);
      const int64_t strips = (rows + max - 1) / max;
      // The first `higher` strips have one row more.
      const int64_t height = rows / static_cast<uint32_t>(strips), higher = rows - strips * height;
      const auto compute = [&](int64_t strip, int64_t end, bool asks) {
        if (strip == end) return;
        const int64_t i = begin + strip * height + std::min(strip, higher);
        t.count = end - strip;
        t.a = args_.trans_a ? args_.a + depth.first * args_.lda + block.row + i
                            : args_.a + (block.row + i) * args_.lda + depth.first;
        t.ask = depth.ask + (args_.trans_a ? block.row + i : j);
        t.from = from == nullptr ? nullptr : from + i * t.from_stride + j;
        t.to = to + i * t.to_stride + j;
        t.add = args_.accumulate && depth.last ? block.c + i * block.c_stride + j : nullptr;
        // Loads already limit the speed of narrow tiles here.
        tile_fn<V>(height + (strip < higher), narrow, !args_.trans_a, asks && !narrow)(t);
      };
      const bool last_block = block.row + block.rows == first_row_ + rows_;
      const int64_t quiet = depth.asks == Asks::kAlways                   ? 0
                            : depth.asks == Asks::kInTheEnd && last_block ? strips - 1
                                                                          : strips;
      compute(0, std::min(higher, quiet), false);
      compute(std::min(higher, quiet), higher, true);
      compute(higher, std::max(higher, quiet), false);
      compute(std::max(higher, quiet), strips, true);
    }
  }

  /// Computes all steps of the block's first `rows` rows (a multiple of the lanes). A narrow C
  /// would leave most lanes of a vector unused. Tiles of the transpose of C use whole vectors of A
  /// instead.
  void compute_flipped(const Block& block, int64_t rows) const {
    Tiles t;
    t.depth = args_.k;
    t.a_stride = stored_stride();
    t.b_stride = t.ask_step = args_.lda;
    t.ask_jump = 32 * args_.lda;
    t.to_stride = kPanel;
    float* const tile = flipped_;
    std::fill(tile + cols_ * kPanel, tile + kFlippedCols * kPanel, 0.0f);
    const bool direct = !args_.accumulate && (args_.c_panel > 0 || args_.scratch_c);
    for (int64_t i = 0; i < rows; i += t.cols) {
      t.cols = std::min<int64_t>(S::kCols, rows - i);
      t.b = args_.a + block.row + i;
      t.ask = t.b + kBAhead * args_.lda;
      for (int64_t j = 0; j < cols_; j += S::kRows) {
        t.a = b_in_place(0) + j;
        t.to = tile + j * kPanel;
        const bool narrow = t.cols <= V::kLanes;
        tile_fn<V>(std::min<int64_t>(S::kRows, cols_ - j), narrow, false, !narrow)(t);
      }
      float* const result = block.result + i * block.result_stride;
      float* const rows_of_c = direct ? result : tile + kFlippedCols * kPanel;
      const int64_t stride = direct ? block.result_stride : kFlippedCols;
      transpose_block<V>(tile, kPanel, t.cols, kPanel, kFlippedCols, stride, rows_of_c);
      if (!direct) copy_result(block, i, t.cols, rows_of_c);
    }
  }

  /// Stores `rows` rows of the block from `begin` on, after adding C if `accumulate` is set. The
  /// rows at `from` are kFlippedCols floats apart.
  void copy_result(const Block& block, int64_t begin, int64_t rows, const float* from) const {
    for (int64_t i = begin; i < begin + rows; ++i, from += kFlippedCols) {
      float* const result = block.result + i * block.result_stride;
      for (int64_t j = 0; j < cols_; j += V::kLanes) {
        V x = V::load(from + j);
        if (args_.accumulate) x = V::load_partial(block.c + i * block.c_stride + j, cols_ - j) + x;
        if (args_.c_panel > 0 || args_.scratch_c)
          select(V::Mask::first(cols_ - j), x, V(0.0f)).store(result + j);
        else
          x.store_partial(result + j, cols_ - j);
      }
    }
  }

  /// Finishes a block after the last step: clears the rest of a panel of C and runs the epilogue.
  void finish(const Block& block) const {
    const int64_t written = args_.k == 0 ? cols_ : read_cols();
    if (args_.c_panel > written && !args_.scratch_c) {
      for (int64_t i = 0; i < block.rows; ++i) {
        float* const row = block.c + i * block.c_stride;
        std::fill(row + written, row + args_.c_panel, 0.0f);
      }
    }
    if (args_.epilogue.run == nullptr) return;
    args_.epilogue.run(args_.epilogue.state, block.result, block.result_stride, block.row,
                       block.rows, col_, cols_);
  }

  void fill_without_depth(const Block& block) const {
    for (int64_t i = 0; i < block.rows; ++i) {
      float* const result = block.result + i * block.result_stride;
      const float* const c = block.c + i * block.c_stride;
      for (int64_t j = 0; j < cols_; ++j)
        result[j] = args_.continues ? c[j] : args_.accumulate ? c[j] + 0.0f : 0.0f;
    }
  }

  /// Returns the maximum number of rows of a tile. Rows of A that are a multiple of 4 KiB apart
  /// share one set of the L1 cache. A tile then reads at most as many rows as the cache has ways.
  int64_t max_rows(bool narrow) const {
    const int64_t max = narrow ? S::kNarrowRows : S::kRows;
    const bool one_set = !args_.trans_a && args_.lda % 1024 == 0 && args_.k > 16;
    return one_set ? std::min<int64_t>(max, plan_.cache_ways) : max;
  }

  /// Returns the columns that tiles read, which is also the row stride of a packed block. If a
  /// row-major B has fewer columns, the block is packed.
  int64_t read_cols() const {
    const int64_t rest = cols_ % S::kCols;
    return cols_ - rest + (rest == 0 ? 0 : rest <= V::kLanes ? V::kLanes : S::kCols);
  }

  int64_t stored_stride() const { return args_.b_panel > 0 ? args_.b_panel : args_.ldb; }

  const float* b_in_place(int64_t first) const {
    return args_.b_panel > 0 ? args_.b + col_ * args_.k + first * args_.b_panel
                             : args_.b + first * args_.ldb + col_;
  }

  void pack(int64_t first, int64_t steps) const {
    const int64_t width = read_cols();
    if (!args_.trans_b) {
      copy_block<V>(b_in_place(first), stored_stride(), steps, cols_, width, packed_);
    } else if (args_.b_panel == 0) {
      transpose_block<V>(args_.b + col_ * args_.ldb + first, args_.ldb, steps, steps, cols_, width,
                         packed_);
    } else {
      const int64_t panel = args_.b_panel;
      for (int64_t k = 0; k < steps; k += panel) {
        transpose_block<V>(args_.b + (first + k) * args_.n + col_ * panel, panel,
                           std::min(panel, steps - k), panel, cols_, width, packed_ + k * width);
      }
    }
  }

  const GemmArgs& args_;
  const GemmPlan plan_;
  const bool flips_;  ///< Computes tiles of the transpose of a narrow C.
  const int64_t tile_rows_;
  int64_t block_rows_ = 0;  ///< Rows of a block: whole tiles.
  bool packs_b_ = false;
  float *const packed_, *const chains_, *const flipped_;  ///< Parts of the workspace.
  int64_t first_row_ = 0, rows_ = 0;                      ///< Rows that share a packed op(B).
  int64_t col_ = 0, cols_ = 0;
};

}  // namespace

template <>
void gemm_on<kUnitIsa>(const GemmArgs& args, int64_t row_begin, int64_t row_end, int64_t col_begin,
                       int64_t col_end, float* workspace) {
  if (row_end > row_begin && col_end > col_begin)
    Product(args, workspace).run(row_begin, row_end, col_begin, col_end);
}

template <>
TileKernels TileList<kUnitIsa>::get() {
  return {.rows = S::kRows,
          .narrow_rows = S::kNarrowRows,
          .cols = S::kCols,
          .narrow_cols = V::kLanes,
          .find = [](int64_t rows, bool narrow,
                     bool rows_apart) { return tile_fn<V>(rows, narrow, rows_apart, false); },
          .copy = [](const float* from, int64_t stride, int64_t depth, int64_t cols,
                     float* panel) { copy_block<V>(from, stride, depth, cols, kPanelCols, panel); },
          .transpose =
              [](const float* from, int64_t stride, int64_t depth, int64_t cols, float* panel) {
                transpose_block<V>(from, stride, depth, depth, cols, kPanelCols, panel);
              },
          .dot_rows = dot_rows<V>};
}

}  // namespace sluice::cpu::internal
