#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct MatmulOptions {
  bool lhs_transposed = false;
  bool rhs_transposed = false;
  static auto fields(auto&& use) {
    return use(field("lhs_transposed", &MatmulOptions::lhs_transposed,
                     "Use lhs with its last two axes swapped."),
               field("rhs_transposed", &MatmulOptions::rhs_transposed,
                     "Use rhs with its last two axes swapped."));
  }
};

const OpDef& matmul_def();
const OpDef& matmul_accumulate_def();

/// An operand seen as a batch of matrices; a vector is one row (lhs) or one column (rhs).
struct MatrixView {
  Shape batch;
  int64_t rows = 1;
  int64_t cols = 1;
  /// Elements between (i, j) and (i + 1, j). Successive matrices are rows·cols apart.
  int64_t row_stride = 0;
  int64_t col_stride = 1;  ///< Elements between (i, j) and (i, j + 1).
};

/// Sizes of a matmul: out[b] (m x n) = lhs[b] (m x k) · rhs[b] (k x n). Batches broadcast.
struct MatmulShape {
  MatrixView lhs;
  MatrixView rhs;
  Shape batch;  ///< Batch axes of the output.
  int64_t m = 1;
  int64_t n = 1;
  int64_t k = 1;
  Shape out;  ///< Shape of the output: batch, m, n, without the axis that a vector operand lacks.
};

/// Returns the sizes of a matmul. Error{kUsage} naming the constraint of `matmul_def()` that the
/// shapes break.
MatmulShape matmul_shape(const Shape& lhs, const Shape& rhs, const MatmulOptions& options);

/// If all matrices of lhs multiply one rhs, merges their rows into one matrix: one product instead
/// of a batch. Otherwise returns `shape` unchanged.
MatmulShape fold_batch(MatmulShape shape);

/// Matrix product as numpy.matmul: the last two axes are matrices, the axes before them broadcast.
/// A vector lhs is a row, a vector rhs is a column; the axis of a vector is dropped from the
/// result. Each element is one chain of fused multiply-adds in ascending k.
Tensor matmul(TensorArg lhs, TensorArg rhs, const MatmulOptions& options = {});

/// Computes acc += lhs·rhs of matrices (m x k) and (k x n) in the storage of `acc` (m x n),
/// float32. Each element continues as a chain of fused multiply-adds in ascending k. Products of
/// consecutive parts of k, the first one into zeros, thus have the bits of one product. Returns a
/// new handle to the storage.
Tensor matmul_accumulate_(TensorArg acc, TensorArg lhs, TensorArg rhs,
                          const MatmulOptions& options = {});

}  // namespace sluice::ops
