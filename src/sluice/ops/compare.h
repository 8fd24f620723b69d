#pragma once
#include <limits>

#include "sluice/ops/op.h"

namespace sluice::ops {

struct ClipOptions {
  double min = -std::numeric_limits<double>::infinity();  ///< Lower bound.
  double max = std::numeric_limits<double>::infinity();   ///< Upper bound; not below `min`.
  static constexpr auto fields =
      std::tuple{field("min", &ClipOptions::min), field("max", &ClipOptions::max)};
};

const OpDef& equal_def();
const OpDef& greater_def();
const OpDef& logical_and_def();
const OpDef& logical_or_def();
const OpDef& logical_not_def();
const OpDef& where_def();
const OpDef& clip_def();

/// Comparisons: bool, with numpy's broadcasting; operands share one dtype. Any comparison with NaN is false, not_equal
/// is true.
Tensor equal(TensorArg lhs, TensorArg rhs);
Tensor not_equal(TensorArg lhs, TensorArg rhs);
Tensor greater(TensorArg lhs, TensorArg rhs);
Tensor greater_equal(TensorArg lhs, TensorArg rhs);
Tensor less(TensorArg lhs, TensorArg rhs);
Tensor less_equal(TensorArg lhs, TensorArg rhs);

/// On bool; operands of other dtypes are cast to bool first, by an op of their own.
Tensor logical_and(TensorArg lhs, TensorArg rhs);
Tensor logical_or(TensorArg lhs, TensorArg rhs);
Tensor logical_not(TensorArg x);

/// lhs where the condition holds, else rhs; all three broadcast. A condition that is not bool is cast first.
Tensor where(TensorArg condition, TensorArg lhs, TensorArg rhs);
/// x held within [min, max]; NaN stays NaN. The gradient is zero at and beyond the bounds.
Tensor clip(TensorArg x, const ClipOptions& options);

/// Bool, of a floating-point operand.
Tensor isnan(TensorArg x);
Tensor isinf(TensorArg x);
Tensor isfinite(TensorArg x);

}  // namespace sluice::ops
