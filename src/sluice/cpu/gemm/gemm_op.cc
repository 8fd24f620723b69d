#include "sluice/cpu/gemm/gemm_op.h"

#include <algorithm>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/ops/op.h"

namespace sluice::cpu {
namespace {

// Describes a matrix view as a row-major matrix with a leading dimension, or as its transpose.
void set_operand(const ops::MatrixView& view, bool& transposed, int64_t& leading) {
  transposed = view.col_stride != 1 && view.rows != 1;
  leading = transposed ? view.col_stride : view.row_stride;
  if (view.rows == 1 && view.col_stride != 1) {  // The row is a column of a stored matrix.
    transposed = true;
    leading = view.col_stride;
  }
}

// Sets the leading dimension of a matrix of rows × cols; false if gemm() cannot read it.
bool set_leading(int64_t rows, int64_t cols, const ops::StridedMatrices& s, bool& transposed,
                 int64_t& leading) {
  transposed = s.col != 1 && cols > 1;
  if (transposed && s.row != 1 && rows > 1) return false;
  const int64_t steps = transposed ? cols : rows;
  leading = steps == 1 ? std::max(rows, cols) : transposed ? s.col : s.row;
  return leading >= 1;
}

std::vector<int64_t> batch_offsets(const ops::MatrixView& view, const Shape& batch) {
  const ops::BroadcastIndex index(view.batch, batch);
  std::vector<int64_t> offsets;
  for (int64_t b = 0; b < batch.elements(); ++b)
    offsets.push_back(index(b) * view.rows * view.cols);
  return offsets;
}

// Returns a cut along columns, or along rows if they are a single panel.
GemmGrid one_axis_grid(const GemmArgs& args) {
  GemmGrid grid = gemm_grid(args, kMaxGemmTasks);
  if (grid.col_blocks > 1) {
    grid.rows = args.m;
    grid.row_blocks = 1;
  }
  return grid;
}

}  // namespace

GemmArgs MatrixProducts::at(int64_t p, const float* lhs, const float* rhs, float* to) const {
  const auto offset = [&](const std::vector<int64_t>& offsets) {
    return offsets.empty() ? 0 : offsets.data()[p];
  };
  GemmArgs product = args;
  product.a = lhs + offset(a);
  product.b = rhs + offset(b);
  if (to != nullptr) product.c = to + offset(c);
  return product;
}

MatrixProducts products_of(ops::MatmulShape shape) {
  const ops::MatmulShape s = ops::fold_batch(std::move(shape));
  MatrixProducts all;
  all.args.m = s.m;
  all.args.n = s.n;
  all.args.k = s.k;
  set_operand(s.lhs, all.args.trans_a, all.args.lda);
  set_operand(s.rhs, all.args.trans_b, all.args.ldb);
  all.args.ldc = s.n;
  all.count = s.batch.elements();
  if (all.count == 1) return all;
  all.a = batch_offsets(s.lhs, s.batch);
  all.b = batch_offsets(s.rhs, s.batch);
  for (int64_t p = 0; p < all.count; ++p) all.c.push_back(p * s.m * s.n);
  return all;
}

std::optional<MatrixProducts> products_of(const ops::StridedMatmulOptions& o) {
  const ops::StridedMatrices a(o.lhs), b(o.rhs), c(o.out);
  MatrixProducts all;
  all.args.m = o.m;
  all.args.n = o.n;
  all.args.k = o.k;
  all.args.ldc = o.m == 1 ? o.n : c.row;
  if (!set_leading(o.m, o.k, a, all.args.trans_a, all.args.lda) ||
      !set_leading(o.k, o.n, b, all.args.trans_b, all.args.ldb) || (c.col != 1 && o.n > 1))
    return std::nullopt;
  all.a = a.offsets(o.batch);
  all.b = b.offsets(o.batch);
  all.c = c.offsets(o.batch);
  all.count = static_cast<int64_t>(all.c.size());
  return all;
}

bool has_rows_in_order(const ops::StridedMatmulOptions& o) {
  const ops::StridedMatrices c(o.out);
  if ((o.n > 1 && c.col != 1) || (o.m > 1 && c.row != o.n) || c.offset != 0) return false;
  int64_t next = o.m * o.n;
  for (size_t i = o.batch.size(); i-- > 0;) {
    if (o.batch[i] > 1 && c.batch[i] != next) return false;
    next *= o.batch[i];
  }
  return true;
}

ProductCut cut_products(const GemmArgs& args, int64_t products) {
  ProductCut cut;
  if (products == 1) {
    cut.grid = one_axis_grid(args);
    cut.tasks = cut.grid.tasks();
    return cut;
  }
  constexpr double kWorthwhile = 1 << 16;  // Multiply-adds of a task: about a microsecond.
  const double work = static_cast<double>(args.m) * static_cast<double>(args.n) *
                      static_cast<double>(args.k) * static_cast<double>(products);
  const int64_t max = std::clamp<int64_t>(static_cast<int64_t>(std::min(work / kWorthwhile, 1e9)),
                                          1, kMaxGemmTasks);
  const internal::Pieces whole = internal::balance(products, max);
  cut.grid = {args.m, args.n, 1, 1};
  cut.per_task = whole.per_task;
  cut.tasks = ceil_div(products, whole.per_task);
  // Every task of a cut along columns reads all of A, so it must balance the workers better.
  constexpr double kBetter = 0.25;
  const int64_t width = internal::plan_of(args).block_cols;
  const internal::Pieces panels = internal::balance(ceil_div(args.n, width), max);
  if (panels.cost > whole.cost - kBetter) return cut;
  cut.grid.cols = std::min(args.n, panels.per_task * width);
  cut.grid.col_blocks = ceil_div(args.n, cut.grid.cols);
  cut.per_task = products;
  cut.tasks = cut.grid.col_blocks;
  return cut;
}

}  // namespace sluice::cpu
