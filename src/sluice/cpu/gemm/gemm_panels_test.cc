#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "sluice/cpu/gemm/gemm.h"
#include "sluice/cpu/gemm/panels.h"
#include "sluice/cpu/simd/kernel_test_util.h"

namespace sluice::cpu {
namespace {

using Buffer = GuardedBuffer<float>;

enum Flags {
  kTransA = 1,
  kTransB = 2,
  kAccumulate = 4,
  kBPanels = 8,
  kCPanels = 16,
  kEpilogue = 32,
  kScratch = 64,  ///< Used only with kEpilogue.
  kBegin = 128,   ///< Operands begin right after a guard page; otherwise they end at one.
  kAllFlags = 256
};

/// An epilogue that records each element and the number of calls for it, then adds mark().
struct Record {
  std::vector<float> seen;
  std::vector<int> times;
  int64_t n = 0;
  int64_t width = 0;
  bool is_row = false;
  bool well_formed = true;

  static float mark(int64_t row, int64_t col) { return static_cast<float>(row * 3 - col * 2); }

  static void run(const void* state, float* c, int64_t c_stride, int64_t row, int64_t rows,
                  int64_t col, int64_t cols) {
    auto& self = **static_cast<Record* const*>(state);
    const int64_t max = self.is_row ? internal::kRowPanels * internal::kPanel : self.width;
    if (rows > 112 || cols > max || col % self.width != 0) self.well_formed = false;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        float& x = c[i * c_stride + j];
        const int64_t at = (row + i) * self.n + col + j;
        self.seen[static_cast<size_t>(at)] = x;
        ++self.times[static_cast<size_t>(at)];
        x += mark(row + i, col + j);
      }
    }
  }
};

/// One product whose B and C may be in panels. Every operand ends at a guard page or begins right
/// after one.
class PanelProblem {
 public:
  PanelProblem(int64_t m, int64_t n, int64_t k, int flags, std::mt19937& random)
      : flags_(flags), side_(has(kBegin) ? Buffer::Against::kBegin : Buffer::Against::kEnd) {
    args_ = {.m = m,
             .n = n,
             .k = k,
             .trans_a = has(kTransA),
             .trans_b = has(kTransB),
             .accumulate = has(kAccumulate),
             .scratch_c = has(kScratch) && has(kEpilogue)};
    a_ = random_matrix(args_.trans_a ? k : m, args_.trans_a ? m : k, 0, random, args_.lda);
    args_.a = a_->data();
    args_.b_panel = has(kBPanels) ? Panels::width_for(args_.trans_b ? k : n) : 0;
    b_ = random_matrix(args_.trans_b ? n : k, args_.trans_b ? k : n, args_.b_panel, random,
                       args_.ldb);
    args_.b = b_->data();
    args_.c_panel = has(kCPanels) ? Panels::width_for(n) : 0;
    c_ = random_matrix(m, n, args_.c_panel, random, args_.ldc);
  }

  const GemmArgs& args() const { return args_; }
  bool has(int flag) const { return (flags_ & flag) != 0; }
  /// Column ranges of gemm() must begin and end at multiples of this number.
  int64_t column_step() const {
    const int64_t b = args_.trans_b ? 0 : args_.b_panel;
    return args_.c_panel > 0 ? args_.c_panel : b > 0 ? b : has(kEpilogue) ? 32 : 1;
  }

  /// Computes C by its definition, row after row, before the epilogue.
  std::vector<float> expected() const {
    std::vector<float> result;
    for (int64_t i = 0; i < args_.m; ++i) {
      for (int64_t j = 0; j < args_.n; ++j) result.push_back(expected(i, j));
    }
    return result;
  }

  /// Runs the product in blocks. Compares C, the elements that the epilogue saw, and all other
  /// bytes of C's buffer with `expected`.
  void expect_bits(const std::vector<float>& expected, Isa isa, int64_t rows, int64_t cols) const {
    const int64_t m = args_.m, n = args_.n;
    Buffer out(c_->size(), side_);
    std::copy(c_->begin(), c_->end(), out.begin());
    if (args_.c_panel > 0 && !args_.accumulate) std::fill(out.begin(), out.end(), NAN);
    Record record{.seen = std::vector<float>(static_cast<size_t>(m * n)),
                  .times = std::vector<int>(static_cast<size_t>(m * n)),
                  .n = n,
                  .width = column_step(),
                  .is_row = m == 1};
    Record* const state = &record;
    GemmArgs here = args_;
    here.c = out.data();
    if (here.scratch_c && !here.accumulate) here.c = nullptr;
    if (has(kEpilogue)) here.epilogue = {Record::run, &state};
    Buffer workspace(gemm_workspace_bytes(here) / 4);
    for (int64_t i = 0; i < m; i += rows) {
      for (int64_t j = 0; j < n; j += cols) {
        std::fill(workspace.begin(), workspace.end(), NAN);
        gemm(here, i, std::min(i + rows, m), j, std::min(j + cols, n), workspace.data(), isa);
      }
    }

    EXPECT_TRUE(record.well_formed);
    Buffer want(c_->size());
    std::copy(c_->begin(), c_->end(), want.begin());
    if (here.scratch_c && args_.c_panel > 0 && !args_.accumulate)
      std::fill(want.begin(), want.end(), NAN);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<size_t>(i * n + j);
        float x = expected[at];
        if (has(kEpilogue)) {
          ASSERT_EQ(record.times[at], 1) << i << " " << j;
          ASSERT_TRUE(same(record.seen[at], x)) << i << " " << j;
          x += Record::mark(i, j);
        }
        if (!here.scratch_c) want[c_at(i, j)] = x;
      }
    }
    const int64_t at = first_difference(out.data(), want.data(), want.size());
    ASSERT_EQ(at, -1) << out[at] << " for " << want[at];
  }

 private:
  /// Creates a matrix in panels of width `panel` with zero padding, or row-major if `panel` is 0.
  std::unique_ptr<Buffer> random_matrix(int64_t rows, int64_t cols, int64_t panel,
                                        std::mt19937& random, int64_t& stride) const {
    stride = cols;
    const Panels layout{rows, cols, panel};
    auto result = std::make_unique<Buffer>(panel > 0 ? layout.floats() : rows * cols, side_);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j)
        (*result)[panel > 0 ? layout.offset(i, j) : i * cols + j] = any_float(random);
    }
    return result;
  }

  int64_t c_at(int64_t i, int64_t j) const {
    const Panels layout{args_.m, args_.n, args_.c_panel};
    return args_.c_panel > 0 ? layout.offset(i, j) : i * args_.ldc + j;
  }

  float expected(int64_t i, int64_t j) const {
    float chain = 0;
    for (int64_t k = 0; k < args_.k; ++k) {
      const int64_t r = args_.trans_b ? j : k, c = args_.trans_b ? k : j;
      const Panels layout{args_.trans_b ? args_.n : args_.k, args_.trans_b ? args_.k : args_.n,
                          args_.b_panel};
      const float x = args_.trans_a ? (*a_)[k * args_.lda + i] : (*a_)[i * args_.lda + k];
      const float y = (*b_)[args_.b_panel > 0 ? layout.offset(r, c) : r * args_.ldb + c];
      chain = std::fma(x, y, chain);
    }
    return args_.accumulate ? (*c_)[c_at(i, j)] + chain : chain;
  }

  int flags_;
  Buffer::Against side_;
  GemmArgs args_;
  std::unique_ptr<Buffer> a_, b_, c_;
};

void expect_panel_bits(const PanelProblem& p, int64_t rows, int64_t cols) {
  in_both_modes([&] {
    const std::vector<float> expected = p.expected();
    for (const Isa isa : available_isas()) {
      const GemmArgs& args = p.args();
      SCOPED_TRACE(::testing::Message()
                   << to_string(isa) << " m " << args.m << " n " << args.n << " k " << args.k
                   << " trans " << args.trans_a << args.trans_b << " panels " << args.b_panel << " "
                   << args.c_panel << " accumulate " << args.accumulate << " epilogue "
                   << p.has(kEpilogue) << " scratch " << args.scratch_c << " blocks " << rows
                   << " x " << cols);
      p.expect_bits(expected, isa, rows, cols);
    }
  });
}

/// Checks the product computed at once and in blocks.
void expect_panel_bits(int64_t m, int64_t n, int64_t k, int flags, std::mt19937& random) {
  const PanelProblem p(m, n, k, flags, random);
  expect_panel_bits(p, m, n);
  const int64_t step = p.column_step();
  const int64_t steps = 1 + static_cast<int64_t>(random()) % ((n + step - 1) / step);
  expect_panel_bits(p, 1 + static_cast<int64_t>(random()) % m, steps * step);
}

TEST(GemmPanels, EveryCombinationHasTheDefinedBits) {
  tested_isas();
  std::mt19937 random(21);
  for (int flags = 0; flags < kAllFlags; ++flags) {
    const auto upto = [&](int64_t max) { return 1 + static_cast<int64_t>(random()) % max; };
    expect_panel_bits(upto(40), upto(100), upto(70), flags, random);
    expect_panel_bits(upto(40), upto(16), upto(40), flags, random);
  }
}

TEST(GemmPanels, ManyBlocksHaveTheDefinedBits) {
  std::mt19937 random(22);
  for (int flags = 0; flags < kBegin; flags += 5) expect_panel_bits(115, 35, 260, flags, random);
  for (const int flags : {kBPanels + 0, kBPanels + kTransB, kTransA + kCPanels,
                          kTransA + kCPanels + kAccumulate + kEpilogue + kScratch}) {
    expect_panel_bits(230, 10, 31, flags, random);
    expect_panel_bits(9, 70, 1030, flags, random);
    expect_panel_bits(8, 96, 512, flags, random);
  }
}

TEST(GemmPanels, EveryTileHeightAndWidthHasTheDefinedBits) {
  std::mt19937 random(23);
  for (int64_t m = 1; m <= 30; ++m) {
    for (const int64_t n : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33}) {
      for (const int flags : {kBPanels + 0, kBPanels + kTransB, kTransA + kCPanels})
        expect_panel_bits(PanelProblem(m, n, 5, flags, random), m, n);
    }
  }
}

TEST(GemmPanels, OneRowHasTheDefinedBits) {
  std::mt19937 random(27);
  for (int flags = 0; flags < kAllFlags; ++flags) {
    for (const int64_t n : {1, 31, 63, 64, 65, 127, 128, 129, 231})
      expect_panel_bits(1, n, 1 + static_cast<int64_t>(random()) % 50, flags, random);
  }
}

TEST(GemmPanels, RowsBeyondThoseOfOnePackingHaveTheDefinedBits) {
  std::mt19937 random(26);
  for (const int flags :
       {kBPanels + kTransB + kAccumulate, kTransB + kAccumulate + kEpilogue, kAccumulate + 0}) {
    const PanelProblem p(896, 18, 270, flags, random);
    expect_panel_bits(p, 896, 32);
  }
}

TEST(GemmPanels, RowsThatShareACacheSetHaveTheDefinedBits) {
  std::mt19937 random(24);
  expect_panel_bits(33, 40, 1024, kBPanels, random);
}

TEST(GemmPanels, NoDepthGivesZerosOrKeepsC) {
  std::mt19937 random(25);
  for (int flags = 0; flags < kAllFlags; ++flags)
    expect_panel_bits(PanelProblem(3, 37, 0, flags, random), 3, 37);
}

TEST(GemmPanels, PaddingStaysZeroBesideInfinity) {
  // In the lanes of the padding, 0 times infinity gives NaN.
  const int64_t m = 20, n = 10, k = 3;
  std::vector<float> a(m * k, INFINITY), b(k * n, 1.0f);
  std::vector<float> c(static_cast<size_t>(Panels::of(m, n).floats()), NAN);
  const GemmArgs args{.m = m,
                      .n = n,
                      .k = k,
                      .a = a.data(),
                      .lda = m,
                      .trans_a = true,
                      .b = b.data(),
                      .ldb = n,
                      .c = c.data(),
                      .c_panel = 16};
  std::vector<float> workspace(static_cast<size_t>(gemm_workspace_bytes(args) / 4));
  for (const Isa isa : available_isas()) {
    gemm(args, 0, m, 0, n, workspace.data(), isa);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < 16; ++j)
        ASSERT_TRUE(same(c[static_cast<size_t>(i * 16 + j)], j < n ? INFINITY : 0.0f));
    }
  }
}

TEST(GemmGrid, CutsPanelsForEqualShares) {
  const GemmArgs forward{.m = 8, .n = 512, .k = 784, .b_panel = 32};
  EXPECT_EQ(gemm_grid(forward, 16).tasks(), 16);
  const GemmArgs wide{.m = 128, .n = 2304, .k = 768, .b_panel = 32};
  const GemmGrid grid = gemm_grid(wide, 16);
  EXPECT_EQ(grid.cols % 32, 0);
  EXPECT_EQ(grid.col_blocks % 8, 0);
  EXPECT_EQ(grid.cols * grid.col_blocks, 2304);
  // One row: a task reads enough of B, though it computes little.
  EXPECT_EQ(gemm_grid({.m = 1, .n = 384, .k = 128, .b_panel = 32}, 16).tasks(), 2);
  EXPECT_EQ(gemm_grid({.m = 1, .n = 128, .k = 128, .b_panel = 32}, 16).tasks(), 1);
  const GemmArgs narrow{.m = 512, .n = 10, .k = 64, .trans_a = true, .c_panel = 16};
  EXPECT_EQ(gemm_grid(narrow, 16).col_blocks, 1);
  EXPECT_EQ(gemm_grid(narrow, 16).row_blocks, 4);
}

}  // namespace
}  // namespace sluice::cpu
