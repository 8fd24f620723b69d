#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct MatmulOptions {
  bool lhs_transposed = false;  ///< Use lhs with its last two axes swapped.
  bool rhs_transposed = false;  ///< Use rhs with its last two axes swapped.
  static constexpr auto fields =
      std::tuple{field("lhs_transposed", &MatmulOptions::lhs_transposed),
                 field("rhs_transposed", &MatmulOptions::rhs_transposed)};
};

const OpDef& matmul_def();

/// An operand as a batch of matrices; a vector is one row (lhs) or one column (rhs).
struct MatrixView {
  Shape batch;
  int64_t rows = 1;
  int64_t cols = 1;
  int64_t row_stride =
      0;  ///< Elements between (i, j) and (i + 1, j); matrices follow each other rows·cols apart.
  int64_t col_stride = 1;  ///< Elements between (i, j) and (i, j + 1).
};

/// What a kernel must know of a matmul: out[b] (m x n) = lhs[b] (m x k) · rhs[b] (k x n), batches
/// broadcast.
struct MatmulShape {
  MatrixView lhs;
  MatrixView rhs;
  Shape batch;  ///< Of the output.
  int64_t m = 1;
  int64_t n = 1;
  int64_t k = 1;
  Shape out;  ///< batch, m, n, less the axis that a vector operand does not have.
};

/// Error{kUsage} naming the constraint of `matmul_def()` that the shapes break.
MatmulShape matmul_shape(const Shape& lhs, const Shape& rhs, const MatmulOptions& options);

/// The same product with the rows of all of lhs's matrices as rows of one, where all meet one rhs.
MatmulShape fold_batch(MatmulShape shape);

/// numpy.matmul: the last two axes are matrices, those before are broadcast; a vector lhs is a row,
/// a vector rhs a column, and its axis is dropped from the result. Each element is one chain of
/// fused multiply-adds in ascending k.
Tensor matmul(TensorArg lhs, TensorArg rhs, const MatmulOptions& options = {});

}  // namespace sluice::ops
