#pragma once
#include "sluice/ops/op.h"

/// Matrix products whose operands lie anywhere in their tensors: transposed, sliced or split
/// tensors that nobody makes. The compiler emits them (compiler/passes/fusion/strided_products.h).
namespace sluice::ops {

/// out[b] (m x n) = lhs[b] (m x k) · rhs[b] (k x n) for each index b of `batch`.
struct StridedMatmulOptions {
  std::vector<int64_t> batch = {};  ///< Sizes of the batch axes.
  int64_t m = 1;
  int64_t n = 1;
  int64_t k = 1;
  /// In elements: the offset of the first element, the stride of each batch axis, and the strides
  /// of the matrix: of m and k, of k and n, of m and n.
  std::vector<int64_t> lhs = {0, 1, 1};
  std::vector<int64_t> rhs = {0, 1, 1};
  std::vector<int64_t> out = {0, 1, 1};
  std::vector<int64_t> shape = {1, 1};  ///< Shape of the result.
  static auto fields(auto&& use) {
    using O = StridedMatmulOptions;
    return use(field("batch", &O::batch), field("m", &O::m), field("n", &O::n), field("k", &O::k),
               field("lhs", &O::lhs), field("rhs", &O::rhs), field("out", &O::out),
               field("shape", &O::shape));
  }
};

/// Where the matrices of an operand or of the result lie: in elements.
struct StridedMatrices {
  int64_t offset = 0;
  std::vector<int64_t> batch;  ///< Stride of each batch axis.
  int64_t row = 1;
  int64_t col = 1;

  StridedMatrices() = default;
  explicit StridedMatrices(const std::vector<int64_t>& list)
      : offset(list[0]),
        batch(list.begin() + 1, list.end() - 2),
        row(list[list.size() - 2]),
        col(list.back()) {}
  /// As an entry of StridedMatmulOptions.
  std::vector<int64_t> list() const {
    std::vector<int64_t> all{offset};
    all.insert(all.end(), batch.begin(), batch.end());
    all.insert(all.end(), {row, col});
    return all;
  }
  /// Offset of the matrix of each index of the batch axes of these sizes, in row-major order.
  std::vector<int64_t> offsets(const std::vector<int64_t>& sizes) const;
};

/// A product of strided matrices. Each element is one chain of fused multiply-adds in ascending k.
const OpDef& strided_matmul_def();
/// Whether a definition is strided_matmul_def(). Does not make that, which few programs need.
bool is_strided_matmul(const OpDef& def);

}  // namespace sluice::ops
