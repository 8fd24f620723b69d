#include "sluice/cpu/reduce/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "sluice/base/numbers/extended_range.h"
#include "sluice/base/numbers/simd_math.h"
#include "sluice/base/reduce.h"
#include "sluice/cpu/simd/kernel_test_util.h"

namespace sluice::cpu {
namespace {

using Buffer = GuardedBuffer<float>;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr ReduceOp kOps[] = {ReduceOp::kSum,         ReduceOp::kMean,
                             ReduceOp::kMax,         ReduceOp::kMin,
                             ReduceOp::kProd,        ReduceOp::kL1,
                             ReduceOp::kL2,          ReduceOp::kSumSquare,
                             ReduceOp::kSumExtended, ReduceOp::kSumSquareExtended};

float larger(float a, float b) { return max_or_nan(simd::F1(a), simd::F1(b)).v; }
float smaller(float a, float b) { return min_or_nan(simd::F1(a), simd::F1(b)).v; }

/// Computes the reduction by its definition.
float expected(ReduceOp op, const float* x, int64_t n, int64_t stride) {
  const auto at = [&](int64_t i) { return x[i * stride]; };
  const auto square = [&](int64_t i) { return at(i) * at(i); };
  switch (op) {
    case ReduceOp::kSum:
      return canonical_sum<float>(n, at);
    case ReduceOp::kMean:
      return canonical_sum<float>(n, at) / static_cast<float>(n);
    case ReduceOp::kMax:
      return canonical_reduce(n, -kInf, at, larger);
    case ReduceOp::kMin:
      return canonical_reduce(n, kInf, at, smaller);
    case ReduceOp::kProd:
      return canonical_reduce(n, 1.0f, at, [](float a, float b) { return a * b; });
    case ReduceOp::kL1:
      return canonical_sum<float>(n, [&](int64_t i) { return std::fabs(at(i)); });
    case ReduceOp::kL2:
      return std::sqrt(canonical_sum<float>(n, square));
    case ReduceOp::kSumSquare:
      break;
    case ReduceOp::kSumExtended:
      return canonical_reduce(n, 0.0f, at, add_extended<float>);
    case ReduceOp::kSumSquareExtended:
      return canonical_reduce(
          n, 0.0f, [&](int64_t i) { return square_extended(at(i)); }, add_extended<float>);
  }
  return canonical_sum<float>(n, square);
}

void fill_with_numbers(Buffer& buffer, std::mt19937& random) {
  for (float& x : buffer) x = any_float(random);
}

TEST(ReduceRows, HaveTheCanonicalBits) {
  std::mt19937 random(1);
  for (int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 33, 100, 1000}) {
    for (const int64_t pad : {0, 3}) {
      constexpr int64_t kRows = 3;
      Buffer x(std::max<int64_t>(0, kRows * (n + pad) - pad)), y(kRows);
      fill_with_numbers(x, random);
      for (const ReduceOp op : kOps) {
        in_both_modes([&] {
          for (const Isa isa : tested_isas()) {
            reduce_rows(op, x.data(), kRows, n, n + pad, y.data(), isa);
            for (int64_t r = 0; r < kRows; ++r) {
              EXPECT_TRUE(same(y[r], expected(op, x.data() + r * (n + pad), n, 1)))
                  << to_string(isa) << " op " << static_cast<int>(op) << " n " << n << " row " << r;
            }
          }
        });
      }
    }
  }
}

TEST(ReduceRuns, HaveTheBitsOfTheSameRow) {
  std::mt19937 random(5);
  for (const int64_t n : {1, 2, 5, 15, 16, 17, 49, 576, 40000}) {
    for (const int64_t runs : {2, 3, 17}) {
      const int64_t rows = n < 1000 ? 3 : 1;
      if (n == 40000 && runs > 3) continue;
      Buffer x(runs * rows * n);
      fill_with_numbers(x, random);
      for (const ReduceOp op : kOps) {
        for (const Isa isa : tested_isas()) {
          Buffer y(rows);
          reduce_runs(op, x.data(), runs, rows, n, 0, rows, y.data(), isa);
          for (int64_t r = 0; r < rows; ++r) {
            std::vector<float> row;
            for (int64_t run = 0; run < runs; ++run) {
              const float* const from = x.data() + (run * rows + r) * n;
              row.insert(row.end(), from, from + n);
            }
            EXPECT_TRUE(same(y[r], expected(op, row.data(), runs * n, 1)))
                << to_string(isa) << " op " << static_cast<int>(op) << " n " << n << " runs "
                << runs << " row " << r;
          }
        }
      }
    }
  }
}

TEST(ReduceColumns, HaveTheBitsOfTheSameRow) {
  std::mt19937 random(2);
  for (int64_t n : {0, 1, 3, 15, 16, 17, 64, 100}) {
    for (const int64_t cols : {1, 7, 8, 10, 16, 33}) {
      for (const int64_t pad : {0, 5}) {
        Buffer x(std::max<int64_t>(0, n * (cols + pad) - pad)), y(cols);
        fill_with_numbers(x, random);
        for (const ReduceOp op : kOps) {
          in_both_modes([&] {
            for (const Isa isa : available_isas()) {
              reduce_columns(op, x.data(), n, cols, cols + pad, y.data(), isa);
              for (int64_t c = 0; c < cols; ++c) {
                EXPECT_TRUE(same(y[c], expected(op, x.data() + c, n, cols + pad)))
                    << to_string(isa) << " op " << static_cast<int>(op) << " n " << n << " column "
                    << c;
              }
            }
          });
        }
      }
    }
  }
}

TEST(ReduceRows, OfManyElementsAreReducedInChunks) {
  std::mt19937 random(3);
  for (const int64_t n :
       {kReduceChunk, kReduceChunk + 1, 2 * kReduceChunk, 18 * kReduceChunk + 7}) {
    Buffer x(n), y(1);
    fill_with_numbers(x, random);
    for (const ReduceOp op : kOps) {
      for (const Isa isa : tested_isas()) {
        reduce_rows(op, x.data(), 1, n, n, y.data(), isa);
        EXPECT_TRUE(same(y[0], expected(op, x.data(), n, 1))) << to_string(isa) << " n " << n;
      }
    }
  }
}

TEST(ReduceColumns, OfManyElementsAreReducedInChunks) {
  std::mt19937 random(4);
  constexpr int64_t kMany = 2 * kReduceChunk + 77;
  for (const int64_t cols : {1, 3, 17}) {
    Buffer x(kMany * cols), y(cols);
    fill_with_numbers(x, random);
    for (const ReduceOp op : {ReduceOp::kMean, ReduceOp::kL2, ReduceOp::kMin}) {
      for (const Isa isa : tested_isas()) {
        reduce_columns(op, x.data(), kMany, cols, cols, y.data(), isa);
        for (int64_t c = 0; c < cols; ++c) {
          EXPECT_TRUE(same(y[c], expected(op, x.data() + c, kMany, cols)))
              << to_string(isa) << " column " << c << " of " << cols;
        }
      }
    }
  }
}

TEST(ReduceRows, NaNReachesEveryResultAndMinusZeroDoesNotMatter) {
  const float with_nan[] = {1, 2, NAN, 4};
  const float zeros[] = {-0.0f, -0.0f};
  for (const Isa isa : available_isas()) {
    for (const ReduceOp op : kOps) {
      float y = 0;
      reduce_rows(op, with_nan, 1, 4, 4, &y, isa);
      EXPECT_TRUE(std::isnan(y)) << static_cast<int>(op);
    }
    float y = 1;
    reduce_rows(ReduceOp::kSum, zeros, 1, 2, 2, &y, isa);
    EXPECT_TRUE(same(y, 0.0f));
  }
}

/// Results of the four row kernels of softmax, computed by their definition with one lane.
struct SoftmaxRow {
  std::vector<float> y, log_y, dx, log_dx;

  SoftmaxRow(const float* x, const float* grad, int64_t n) : y(n), log_y(n), dx(n), log_dx(n) {
    using simd::F1;
    const auto exp1 = [](float v) { return simd::exp(F1(v)).v; };
    const float top = canonical_reduce(
        n, -kInf, [&](int64_t i) { return x[i]; }, larger);
    const float total = canonical_sum<float>(n, [&](int64_t i) { return exp1(x[i] - top); });
    const float shift = simd::log(F1(total)).v;
    for (int64_t i = 0; i < n; ++i) {
      y[i] = exp1(x[i] - top) / total;
      log_y[i] = x[i] - top - shift;
    }
    const float dot = canonical_sum<float>(n, [&](int64_t i) { return grad[i] * y[i]; });
    const float sum = canonical_sum<float>(n, [&](int64_t i) { return grad[i]; });
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = y[i] * (grad[i] - dot);
      log_dx[i] = grad[i] - exp1(log_y[i]) * sum;
    }
  }
};

TEST(Softmax, RowsAndGradientsHaveTheCanonicalBits) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> unit(-20, 20);
  for (int64_t n : {1, 2, 9, 10, 16, 17, 50, 257}) {
    constexpr int64_t kRows = 2;
    Buffer x(kRows * n), grad(kRows * n), out(kRows * n);
    for (float& v : x) v = unit(random);
    for (float& v : grad) v = unit(random);
    if (n > 2) x[1] = -kInf;
    for (const Isa isa : tested_isas()) {
      for (int64_t r = 0; r < kRows; ++r) {
        const SoftmaxRow want(x.data() + r * n, grad.data() + r * n, n);
        const float* row = out.data() + r * n;
        softmax_rows(x.data(), kRows, n, out.data(), isa);
        EXPECT_EQ(first_difference(row, want.y.data(), n), -1) << to_string(isa) << " n " << n;
        softmax_grad_rows(grad.data() + r * n, want.y.data(), 1, n, out.data() + r * n, isa);
        EXPECT_EQ(first_difference(row, want.dx.data(), n), -1) << to_string(isa) << " n " << n;
        log_softmax_rows(x.data(), kRows, n, out.data(), isa);
        EXPECT_EQ(first_difference(row, want.log_y.data(), n), -1) << to_string(isa) << " n " << n;
        log_softmax_grad_rows(grad.data() + r * n, want.log_y.data(), 1, n, out.data() + r * n,
                              isa);
        EXPECT_EQ(first_difference(row, want.log_dx.data(), n), -1) << to_string(isa) << " n " << n;
      }
    }
  }
}

TEST(Softmax, ResultsMayReplaceInputs) {
  std::mt19937 random(4);
  Buffer x(30), grad(30), y(30), dx(30);
  fill_with_numbers(x, random);
  fill_with_numbers(grad, random);
  softmax_rows(x.data(), 3, 10, y.data());
  softmax_grad_rows(grad.data(), y.data(), 3, 10, dx.data());
  softmax_rows(x.data(), 3, 10, x.data());
  EXPECT_EQ(first_difference(x.data(), y.data(), 30), -1);
  softmax_grad_rows(grad.data(), y.data(), 3, 10, y.data());
  EXPECT_EQ(first_difference(y.data(), dx.data(), 30), -1);
}

}  // namespace
}  // namespace sluice::cpu
