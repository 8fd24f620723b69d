#pragma once
#include <limits>

#include "sluice/ops/op.h"

namespace sluice::ops {

struct ClipOptions {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  static auto fields(auto&& use) {
    return use(field("min", &ClipOptions::min, "Lower bound."),
               field("max", &ClipOptions::max, "Upper bound; not below `min`."));
  }
};

const OpDef& equal_def();
const OpDef& greater_def();
const OpDef& logical_and_def();
const OpDef& logical_or_def();
const OpDef& logical_not_def();
const OpDef& where_def();
const OpDef& clip_def();

/// Comparisons with numpy's broadcasting; the result is bool. Operands must have one dtype. If an
/// operand is NaN, not_equal is true and every other comparison is false.
Tensor equal(TensorArg lhs, TensorArg rhs);
Tensor not_equal(TensorArg lhs, TensorArg rhs);
Tensor greater(TensorArg lhs, TensorArg rhs);
Tensor greater_equal(TensorArg lhs, TensorArg rhs);
Tensor less(TensorArg lhs, TensorArg rhs);
Tensor less_equal(TensorArg lhs, TensorArg rhs);
/// A number as an operand becomes scalar_like() of the other operand.
Tensor equal(TensorArg lhs, double rhs);
Tensor equal(double lhs, TensorArg rhs);
Tensor not_equal(TensorArg lhs, double rhs);
Tensor not_equal(double lhs, TensorArg rhs);
Tensor greater(TensorArg lhs, double rhs);
Tensor greater(double lhs, TensorArg rhs);
Tensor greater_equal(TensorArg lhs, double rhs);
Tensor greater_equal(double lhs, TensorArg rhs);
Tensor less(TensorArg lhs, double rhs);
Tensor less(double lhs, TensorArg rhs);
Tensor less_equal(TensorArg lhs, double rhs);
Tensor less_equal(double lhs, TensorArg rhs);

/// Logical functions of bool tensors. An operand of another dtype is cast to bool first, by a
/// separate op.
Tensor logical_and(TensorArg lhs, TensorArg rhs);
Tensor logical_or(TensorArg lhs, TensorArg rhs);
Tensor logical_not(TensorArg x);
Tensor logical_and(TensorArg lhs, bool rhs);
Tensor logical_and(bool lhs, TensorArg rhs);
Tensor logical_or(TensorArg lhs, bool rhs);
Tensor logical_or(bool lhs, TensorArg rhs);

/// Selects lhs where `condition` holds, else rhs; all three broadcast. A condition of another dtype
/// is cast to bool first.
Tensor where(TensorArg condition, TensorArg lhs, TensorArg rhs);
Tensor where(TensorArg condition, TensorArg lhs, double rhs);
Tensor where(TensorArg condition, double lhs, TensorArg rhs);
/// Limits x to [min, max]; NaN stays NaN. The gradient is zero at and beyond the bounds.
Tensor clip(TensorArg x, const ClipOptions& options);

/// Classify the elements of a floating-point tensor; the result is bool.
Tensor isnan(TensorArg x);
Tensor isinf(TensorArg x);
Tensor isfinite(TensorArg x);

}  // namespace sluice::ops
