#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct GatherOptions {
  int64_t axis = 0;
  bool zero_out_of_range = false;
  static auto fields(auto&& use) {
    return use(field("axis", &GatherOptions::axis, "Axis to index; negative counts from the end."),
               field("zero_out_of_range", &GatherOptions::zero_out_of_range,
                     "Write zeros, not NaN, for an index outside the axis."));
  }
};

struct GatherGradOptions {
  int64_t axis = 0;
  int64_t size = 0;
  static auto fields(auto&& use) {
    return use(field("axis", &GatherGradOptions::axis,
                     "Axis of the gathered operand, counted from the front."),
               required_field("size", &GatherGradOptions::size, "Size of that axis."));
  }
};

struct OnehotOptions {
  int64_t classes = 0;
  int64_t axis = -1;
  static auto fields(auto&& use) {
    return use(required_field("classes", &OnehotOptions::classes, "Size of the new axis."),
               field("axis", &OnehotOptions::axis,
                     "Position of the new axis in the result; negative counts from the end."));
  }
};

const OpDef& gather_def();
const OpDef& gather_grad_def();
const OpDef& onehot_def();
const OpDef& onehot_grad_def();

/// Takes slices of t along `axis` at `indices`, as numpy.take. `indices` is int32 or uint32 of any
/// shape, which replaces the axis. An index outside [0, size) yields NaN (zero for integers and
/// bool), or zero with `zero_out_of_range`. Negative indices do not count from the end.
Tensor gather(TensorArg t, TensorArg indices, const GatherOptions& options = {});

/// The windows of `size` elements along an axis that begin `step` elements apart, as
/// torch.Tensor.unfold: their elements are a new last axis, the only one for a scalar.
/// Error{kUsage} unless step is at least 1 and size is between 0 and the elements of the axis.
Tensor unfold(TensorArg t, int64_t axis, int64_t size, int64_t step);

/// The gradient of gather's operand: adds each slice of `grad` to zeros where `gather` took it.
/// Slices are added in the order of `indices`. Indices out of range add nothing.
Tensor gather_grad(TensorArg grad, TensorArg indices, const GatherGradOptions& options);

/// Expands `indices` by a new axis of size `classes`, with `values` = [off, on]. An element is on
/// where its position along the new axis equals the index, else off. An index outside [0, classes)
/// gives only off.
Tensor onehot(TensorArg indices, TensorArg values, const OnehotOptions& options);

}  // namespace sluice::ops
