#pragma once
#include <optional>
#include <vector>

#include "sluice/cpu/gemm/gemm.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/strided_matrices.h"

namespace sluice::cpu {

/// Maximum number of tasks of a matrix product: enough to balance a few workers. The plan depends
/// on this number; the bits of the result do not.
inline constexpr int64_t kMaxGemmTasks = 16;

/// The matrix products of one op, all of the same sizes.
struct MatrixProducts {
  GemmArgs args;  ///< Sizes, flags and leading dimensions of each product.
  int64_t count = 1;
  /// Offsets in elements of the matrices of each product. Empty: one product at offset 0.
  std::vector<int64_t> a, b, c;

  /// Returns the arguments of product `p` of the op's operands; `to` may be null.
  GemmArgs at(int64_t p, const float* lhs, const float* rhs, float* to) const;
};

/// Returns the products of a (batched) matmul. The matrices of the result follow each other.
MatrixProducts products_of(ops::MatmulShape shape);

/// Returns the products of a strided matmul; nothing if gemm() cannot read or write its matrices.
std::optional<MatrixProducts> products_of(const ops::StridedMatmulOptions& options);

/// Returns whether the matrices of a strided matmul's result follow each other, row-major.
bool has_rows_in_order(const ops::StridedMatmulOptions& options);

/// How several products of equal sizes are cut into tasks. A task computes all of some products, or
/// the same part of every product.
struct ProductCut {
  GemmGrid grid;         ///< How each product is cut.
  int64_t per_task = 1;  ///< MatrixProducts of a task.
  int64_t tasks = 1;
  /// Whether a task computes all of some products.
  bool by_products() const { return grid.tasks() == 1; }
  int64_t first_product(int64_t task) const { return task / grid.tasks() * per_task; }
  int64_t row(int64_t task) const { return task % grid.tasks() / grid.col_blocks * grid.rows; }
  int64_t col(int64_t task) const { return task % grid.tasks() % grid.col_blocks * grid.cols; }
};

/// Returns a cut along one axis only, so that a stride and a pitch describe a task's part of a
/// result whose matrices follow each other. The axis is products, columns or, for a single product
/// that is narrow, rows. Chooses the axis that balances 2, 4 and 8 workers.
ProductCut cut_products(const GemmArgs& args, int64_t products);

}  // namespace sluice::cpu
