#pragma once
#include "sluice/ops/reductions.h"

namespace sluice::ops {

/// Options of a reduction, and the shape of its operand.
struct ReduceGradOptions {
  std::vector<int64_t> axes = {};
  bool keepdims = false;
  Shape shape = {};
  static auto fields(auto&& use) {
    return use(field("axes", &ReduceGradOptions::axes,
                     "Axes that the reduction reduced; empty: all axes."),
               field("keepdims", &ReduceGradOptions::keepdims,
                     "Whether the reduction kept reduced axes with size 1."),
               field("shape", &ReduceGradOptions::shape, "Shape of the forward operand."));
  }
};

const OpDef& reduce_mean_grad_def();
const OpDef& reduce_max_grad_def();
const OpDef& reduce_min_grad_def();
const OpDef& reduce_prod_grad_def();
const OpDef& reduce_l1_grad_def();
const OpDef& reduce_l2_grad_def();
const OpDef& reduce_log_sum_grad_def();
const OpDef& reduce_log_sum_exp_grad_def();
const OpDef& reduce_sum_square_grad_def();

/// Gradients of the reductions of reductions.h. `grad` has the shape of the reduction's result y;
/// the returned gradient has the shape of its operand x. Equal maxima (minima) share the gradient
/// equally.
Tensor reduce_mean_grad(TensorArg grad, const Shape& shape, const ReduceOptions& options);
Tensor reduce_max_grad(TensorArg grad, TensorArg x, TensorArg y, const ReduceOptions& options);
Tensor reduce_min_grad(TensorArg grad, TensorArg x, TensorArg y, const ReduceOptions& options);
Tensor reduce_prod_grad(TensorArg grad, TensorArg x, const ReduceOptions& options);
Tensor reduce_l1_grad(TensorArg grad, TensorArg x, const ReduceOptions& options);
Tensor reduce_l2_grad(TensorArg grad, TensorArg x, TensorArg y, const ReduceOptions& options);
Tensor reduce_log_sum_grad(TensorArg grad, TensorArg y, const Shape& shape,
                           const ReduceOptions& options);
Tensor reduce_log_sum_exp_grad(TensorArg grad, TensorArg x, TensorArg y,
                               const ReduceOptions& options);
Tensor reduce_sum_square_grad(TensorArg grad, TensorArg x, const ReduceOptions& options);

}  // namespace sluice::ops
