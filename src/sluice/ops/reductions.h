#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct ReduceOptions {
  std::vector<int64_t> axes = {};
  bool keepdims = false;
  static auto fields(auto&& use) {
    return use(field("axes", &ReduceOptions::axes,
                     "Axes to reduce; negative counts from the end; empty: all axes."),
               field("keepdims", &ReduceOptions::keepdims, "Keep reduced axes with size 1."));
  }
};

/// Maps each element of a reduction's result to the elements of the operand that it combines.
struct Reduction {
  /// Error{kUsage} citing (C2) for an axis out of range or given twice.
  Reduction(const Shape& in, const ReduceOptions& options, std::string_view what);

  Shape out;           ///< Shape of the result.
  Shape kept;          ///< Shape of the result with keepdims: broadcasts to the operand.
  int64_t extent = 1;  ///< Number of elements combined into one result.
  std::vector<int64_t> kept_dims, kept_strides;  ///< Dimensions and strides of the kept axes.
  /// Dimensions and strides of the reduced axes, in row-major order.
  std::vector<int64_t> reduced_dims, reduced_strides;
};

const OpDef& reduce_sum_def();
const OpDef& reduce_mean_def();
const OpDef& reduce_max_def();
const OpDef& reduce_min_def();
const OpDef& reduce_prod_def();
const OpDef& reduce_l1_def();
const OpDef& reduce_l2_def();
const OpDef& reduce_log_sum_def();
const OpDef& reduce_log_sum_exp_def();
const OpDef& reduce_sum_square_def();
const OpDef& reduce_sum_square_extended_def();

/// Reductions over some or all axes, in the canonical order of base/reduce.h. Integers wrap around.
/// A maximum or minimum of elements with a NaN is NaN. A scalar has one axis, 0 or -1. Without
/// elements a sum is 0, a product 1, and a mean NaN; max and min are an Error{kUsage}.
Tensor sum(TensorArg t, const ReduceOptions& options = {});
Tensor mean(TensorArg t, const ReduceOptions& options = {});
Tensor max(TensorArg t, const ReduceOptions& options = {});
Tensor min(TensorArg t, const ReduceOptions& options = {});
Tensor prod(TensorArg t, const ReduceOptions& options = {});
/// Σ|x|.
Tensor l1(TensorArg t, const ReduceOptions& options = {});
/// √Σx².
Tensor l2(TensorArg t, const ReduceOptions& options = {});
/// log Σx.
Tensor logsum(TensorArg t, const ReduceOptions& options = {});
/// log Σeˣ, without overflow.
Tensor logsumexp(TensorArg t, const ReduceOptions& options = {});
/// Σx².
Tensor sumsquare(TensorArg t, const ReduceOptions& options = {});
/// Σx² of a float32 tensor, in the extended range of extended.h if it overflows float32.
Tensor sumsquare_extended(TensorArg t, const ReduceOptions& options = {});

/// The variance: Σ(x - mean)² / max(0, n - correction) of n elements each; NaN without elements. A
/// correction of 0 is that of numpy, 1 that of torch.
Tensor var(TensorArg t, const ReduceOptions& options = {}, double correction = 0);
/// The standard deviation √var.
Tensor standard_deviation(TensorArg t, const ReduceOptions& options = {}, double correction = 0);
/// The vector norm (Σ|x|ᵖ)^(1/p), as torch.linalg.vector_norm: the largest |x| for p = ∞, the
/// smallest for p = -∞, and the number of elements that are not 0 for p = 0.
Tensor norm(TensorArg t, double p = 2, const ReduceOptions& options = {});
/// Whether any element, or each, is not zero. The result is bool. Without elements, any is false
/// and all is true.
Tensor any(TensorArg t, const ReduceOptions& options = {});
Tensor all(TensorArg t, const ReduceOptions& options = {});

struct ArgOptions {
  int64_t axis = 0;
  bool flatten = false;
  bool keepdims = false;
  static auto fields(auto&& use) {
    return use(field("axis", &ArgOptions::axis, "Axis to search; negative counts from the end."),
               field("flatten", &ArgOptions::flatten,
                     "Search all elements in row-major order; `axis` is not used."),
               field("keepdims", &ArgOptions::keepdims, "Keep reduced axes with size 1."));
  }
};

const OpDef& argmax_def();
const OpDef& argmin_def();

/// Returns the position (int32) of the first largest or smallest element along an axis. A NaN
/// counts as larger (argmax) or smaller (argmin) than any number, so the first NaN wins, as in
/// numpy. There is no gradient.
Tensor argmax(TensorArg t, const ArgOptions& options = {});
Tensor argmin(TensorArg t, const ArgOptions& options = {});

}  // namespace sluice::ops
