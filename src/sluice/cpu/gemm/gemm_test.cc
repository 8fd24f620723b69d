#include "sluice/cpu/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "sluice/cpu/simd/kernel_test_util.h"

namespace sluice::cpu {
namespace {

using Buffer = GuardedBuffer<float>;

/// One product with operands between guard pages. Rows are padded by `pad` elements, which gemm()
/// must not change.
struct Problem {
  GemmArgs args;
  std::unique_ptr<Buffer> a, b;
  std::vector<float> c;  ///< C before the product.

  Problem(int64_t m, int64_t n, int64_t k, int flags, int64_t pad, std::mt19937& random) {
    args = {.m = m,
            .n = n,
            .k = k,
            .trans_a = (flags & 1) != 0,
            .trans_b = (flags & 2) != 0,
            .accumulate = (flags & 4) != 0,
            .continues = (flags & 16) != 0};
    args.lda = (args.trans_a ? m : k) + pad;
    args.ldb = (args.trans_b ? k : n) + pad;
    args.ldc = n + pad;
    const auto side = (flags & 8) != 0 ? Buffer::Against::kBegin : Buffer::Against::kEnd;
    a = matrix(args.trans_a ? k : m, args.lda, pad, side, random);
    b = matrix(args.trans_b ? n : k, args.ldb, pad, side, random);
    args.a = a->data();
    args.b = b->data();
    c.resize(m == 0 ? 0 : m * args.ldc - pad);
    for (float& x : c) x = any_float(random);
  }

  /// Computes C by its definition.
  std::vector<float> expected() const {
    std::vector<float> result = c;
    for (int64_t i = 0; i < args.m; ++i) {
      for (int64_t j = 0; j < args.n; ++j) {
        float& out = result[i * args.ldc + j];
        float chain = args.continues ? out : 0;
        for (int64_t k = 0; k < args.k; ++k) {
          const float x = args.trans_a ? args.a[k * args.lda + i] : args.a[i * args.lda + k];
          const float y = args.trans_b ? args.b[j * args.ldb + k] : args.b[k * args.ldb + j];
          chain = std::fma(x, y, chain);
        }
        out = args.accumulate ? out + chain : chain;
      }
    }
    return result;
  }

  /// Computes C with one call for each block of `rows` × `cols`.
  std::vector<float> run(Isa isa, int64_t rows, int64_t cols) const {
    Buffer out(static_cast<int64_t>(c.size()));
    std::copy(c.begin(), c.end(), out.begin());
    const int64_t floats = gemm_workspace_bytes(args) / 4;
    Buffer workspace(floats);
    GemmArgs here = args;
    here.c = out.data();
    for (int64_t i = 0; i < args.m; i += rows) {
      for (int64_t j = 0; j < args.n; j += cols) {
        std::fill(workspace.begin(), workspace.end(), NAN);
        gemm(here, i, std::min(i + rows, args.m), j, std::min(j + cols, args.n), workspace.data(),
             isa);
      }
    }
    return {out.begin(), out.end()};
  }

 private:
  static std::unique_ptr<Buffer> matrix(int64_t rows, int64_t stride, int64_t pad,
                                        Buffer::Against side, std::mt19937& random) {
    auto result = std::make_unique<Buffer>(rows == 0 ? 0 : rows * stride - pad, side);
    for (float& x : *result) x = any_float(random);
    return result;
  }
};

void expect_defined_bits(const Problem& p, int64_t rows, int64_t cols) {
  in_both_modes([&] {
    const std::vector<float> want = p.expected();
    for (const Isa isa : available_isas()) {
      const std::vector<float> got = p.run(isa, rows, cols);
      const int64_t at =
          first_difference(got.data(), want.data(), static_cast<int64_t>(want.size()));
      ASSERT_EQ(at, -1) << to_string(isa) << " m " << p.args.m << " n " << p.args.n << " k "
                        << p.args.k << " trans " << p.args.trans_a << p.args.trans_b
                        << " accumulate " << p.args.accumulate << " continues " << p.args.continues
                        << " blocks " << rows << " x " << cols << ": " << got[at] << " for "
                        << want[at];
    }
  });
}

TEST(Gemm, RandomShapesHaveTheDefinedBits) {
  tested_isas();
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const int64_t m = 1 + random() % 40;
    const int64_t n = 1 + random() % 80;
    const int64_t k = 1 + random() % 70;
    const Problem p(m, n, k, static_cast<int>(random() % 16), random() % 3, random);
    expect_defined_bits(p, 1 + random() % m, 1 + random() % n);
    expect_defined_bits(p, m, n);
  }
}

TEST(Gemm, ManyBlocksHaveTheDefinedBits) {
  std::mt19937 random(8);
  for (int flags = 0; flags < 8; ++flags) {
    expect_defined_bits(Problem(113, 33, 257, flags, 0, random), 113, 33);
    expect_defined_bits(Problem(5, 47, 700, flags, 1, random), 3, 40);
    expect_defined_bits(Problem(230, 17, 31, flags, 0, random), 230, 17);
  }
  expect_defined_bits(Problem(8, 512, 784, 0, 0, random), 8, 128);
  expect_defined_bits(Problem(64, 10, 512, 0, 0, random), 28, 10);
}

TEST(Gemm, ContinuedChainsHaveTheDefinedBits) {
  std::mt19937 random(14);
  for (const int flags : {16, 17, 18, 19}) {
    expect_defined_bits(Problem(113, 33, 257, flags, 0, random), 113, 33);
    expect_defined_bits(Problem(5, 47, 700, flags, 1, random), 3, 40);
    expect_defined_bits(Problem(64, 10, 512, flags, 0, random), 28, 10);
    expect_defined_bits(Problem(3, 5, 0, flags, 1, random), 3, 5);
    for (int round = 0; round < 50; ++round) {
      const int64_t m = 1 + random() % 40;
      const int64_t n = 1 + random() % 80;
      const Problem p(m, n, 1 + random() % 70, flags, random() % 3, random);
      expect_defined_bits(p, 1 + random() % m, 1 + random() % n);
    }
  }
}

TEST(Gemm, EveryTileHeightAndWidthHasTheDefinedBits) {
  std::mt19937 random(9);
  for (int64_t m = 1; m <= 30; ++m) {
    for (const int64_t n : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33}) {
      expect_defined_bits(Problem(m, n, 5, 0, 0, random), m, n);
    }
  }
}

TEST(Gemm, NoDepthGivesZerosOrKeepsC) {
  std::mt19937 random(10);
  for (const int flags : {0, 4}) expect_defined_bits(Problem(3, 5, 0, flags, 1, random), 3, 5);
}

TEST(Gemm, NoRowsOrColumnsTouchNothing) {
  std::mt19937 random(11);
  expect_defined_bits(Problem(0, 5, 4, 0, 0, random), 1, 1);
  expect_defined_bits(Problem(5, 0, 4, 2, 0, random), 1, 1);
  EXPECT_EQ(gemm_workspace_bytes({.m = 0, .n = 5, .k = 4}), 0);
}

TEST(Gemm, UnderflowKeepsItsSign) {
  // Adding the +0 of padding would change the chain's -0, which comes from an underflow.
  const float a[3] = {-0x1p-100f, 0, 0}, b[1] = {0x1p-100f};
  float c[1] = {1};
  const GemmArgs args{.m = 1, .n = 1, .k = 1, .a = a, .lda = 1, .b = b, .ldb = 1, .c = c, .ldc = 1};
  for (const Isa isa : available_isas()) {
    std::vector<float> workspace(gemm_workspace_bytes(args) / 4);
    gemm(args, 0, 1, 0, 1, workspace.data(), isa);
    EXPECT_TRUE(same(c[0], -0.0f)) << to_string(isa);
  }
}

TEST(Gemm, NaNAndInfinityReachOnlyTheirRowsAndColumns) {
  std::mt19937 random(12);
  Problem p(20, 40, 9, 0, 0, random);
  (*p.a)[3 * 9 + 2] = NAN;
  (*p.b)[5 * 40 + 39] = INFINITY;
  expect_defined_bits(p, 20, 40);
  const std::vector<float> out = p.run(detect_isa(), 20, 40);
  EXPECT_TRUE(std::isnan(out[3 * 40]));
  EXPECT_FALSE(std::isnan(out[4 * 40]));
}

TEST(GemmGrid, CoversEverythingWithAtMostThatManyTasks) {
  std::mt19937 random(13);
  for (int round = 0; round < 2000; ++round) {
    const auto up_to = [&](int64_t max) { return static_cast<int64_t>(random()) % (max + 1); };
    const GemmArgs args{.m = 1 + up_to(700), .n = 1 + up_to(3000), .k = up_to(2000)};
    const int64_t max = 1 + up_to(63);
    const GemmGrid grid = gemm_grid(args, max);
    EXPECT_GE(grid.tasks(), 1);
    EXPECT_LE(grid.tasks(), max);
    EXPECT_GE(grid.rows * grid.row_blocks, args.m);
    EXPECT_LT(grid.rows * (grid.row_blocks - 1), args.m);
    EXPECT_GE(grid.cols * grid.col_blocks, args.n);
    EXPECT_LT(grid.cols * (grid.col_blocks - 1), args.n);
  }
  EXPECT_EQ(gemm_grid({.m = 0, .n = 4, .k = 4}, 8).tasks(), 0);
  EXPECT_EQ(gemm_grid({.m = 8, .n = 512, .k = 784}, 16).tasks(), 16);
  EXPECT_EQ(gemm_grid({.m = 8, .n = 10, .k = 512}, 16).tasks(), 1);
}

}  // namespace
}  // namespace sluice::cpu
