#pragma once
#include <optional>

#include "sluice/cpu/simd/reduce.h"
#include "sluice/ir/op_def.h"

namespace sluice::cpu {

/// The operand of a reduction as a matrix of which one side is reduced.
struct ReduceView {
  ReduceOp op = ReduceOp::kSum;
  bool columns = false;  ///< A result is one of a column; else of a row.
  int64_t extent = 1;    ///< Elements that make a result.
  int64_t results = 1;
};

/// Of an op with results that is a reduction the kernels of reduce.h know, over axes that lie together.
std::optional<ReduceView> reduce_view(const OpView& op);

}  // namespace sluice::cpu
