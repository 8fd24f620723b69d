#include "sluice/cpu/gemm/gemm_op.h"

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

}  // namespace

GemmArgs gemm_args(const ops::MatmulShape& shape) {
  GemmArgs args;
  args.m = shape.m;
  args.n = shape.n;
  args.k = shape.k;
  set_operand(shape.lhs, args.trans_a, args.lda);
  set_operand(shape.rhs, args.trans_b, args.ldb);
  args.ldc = shape.n;
  return args;
}

GemmGrid one_axis_grid(const GemmArgs& args) {
  GemmGrid grid = gemm_grid(args, kMaxGemmTasks);
  if (grid.col_blocks > 1) {
    grid.rows = args.m;
    grid.row_blocks = 1;
  }
  return grid;
}

}  // namespace sluice::cpu
