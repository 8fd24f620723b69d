#pragma once
#include <optional>

#include "sluice/cpu/reduce/reduce.h"
#include "sluice/ir/op_def.h"

namespace sluice::cpu {

/// The operand of a reduction, viewed as a matrix whose columns or rows are reduced. A row may also
/// consist of runs: run i of all rows, then run i + 1 of all rows. The operand may also be several
/// matrices, one after another, whose columns are reduced.
struct ReduceView {
  ReduceOp op = ReduceOp::kSum;
  bool columns = false;  ///< A result reduces a column; otherwise a row.
  int64_t extent = 1;    ///< Elements that are reduced to one result.
  int64_t results = 1;
  int64_t runs = 1;      ///< Runs of a row.
  int64_t matrices = 1;  ///< Each has `results / matrices` columns.
};

/// Returns the view of a reduction. Returns nullopt unless reduce.h supports the op, it has
/// results, and the reduced axes are neighbours or the kept axes are.
std::optional<ReduceView> reduce_view(const OpView& op);

}  // namespace sluice::cpu
