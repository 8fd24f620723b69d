#pragma once
#include <cstddef>
#include <cstdint>

#include "sluice/cpu/simd/isa.h"

/// The softmax of one row of attention's scores, and its gradient, for every instruction set.
namespace sluice::cpu {

/// A row of scores. Keys are counted from the first element of the row.
struct ScoreRow {
  float* x = nullptr;     ///< The products of a query and the keys; becomes the softmax.
  int64_t sum_begin = 0;  ///< First element of the canonical sum; not beyond `begin`.
  int64_t begin = 0;      ///< The query sees the keys [begin, end). Other elements become zero.
  int64_t end = 0;
  int64_t cols = 0;                     ///< Elements of the row.
  float scale = 1;                      ///< Factor of each product.
  const float* add = nullptr;           ///< Added to each score; null: nothing.
  const unsigned char* seen = nullptr;  ///< Whether a score counts; null: all count.
  int64_t mask_step = 1;                ///< Elements of `add` or `seen` from one key to the next.
};

/// The largest score of a row, and the sum of its exponentials.
struct RowSums {
  float top = 0;
  float total = 0;
};

/// Replaces products by the softmax of the scores; zeros if all scores are -inf.
RowSums softmax_row(const ScoreRow& row, Isa isa = current_isa());

/// Does the same with the sums that softmax_row() returned, and replaces the gradient of the
/// softmax by that of the products.
void softmax_grad_row(const ScoreRow& row, const RowSums& sums, float* grad,
                      Isa isa = current_isa());

/// Whether an element of a matrix, whose rows are `stride` floats apart, is infinite or NaN.
bool has_non_finite(const float* x, int64_t stride, int64_t rows, int64_t cols,
                    Isa isa = current_isa());

namespace internal {
template <Isa kIsa>
struct ScoreRowKernels {
  static RowSums softmax(const ScoreRow& row);
  static void gradient(const ScoreRow& row, const RowSums& sums, float* grad);
  static bool has_non_finite(const float* x, int64_t stride, int64_t rows, int64_t cols);
};
}  // namespace internal

}  // namespace sluice::cpu
