#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

/// Options of reshape and broadcast_to.
struct ShapeOptions {
  Shape shape = {};
  static auto fields(auto&& use) {
    return use(required_field("shape", &ShapeOptions::shape, "Shape of the result, without -1."));
  }
};

const OpDef& reshape_def();
const OpDef& reshape_inplace_def();
const OpDef& broadcast_to_def();

/// Returns the elements of t in row-major order under another shape. At most one dimension may be
/// -1; it is then inferred. Error{kUsage} for several -1, other negative dimensions, or a different
/// number of elements.
Tensor reshape(TensorArg t, const Shape& shape);
/// reshape as another handle to t's storage: a later write to either is visible through both.
Tensor reshape_(TensorArg t, const Shape& shape);

/// Reshapes t to one dimension.
Tensor flatten(TensorArg t);
/// flatten as another handle to t's storage.
Tensor flatten_(TensorArg t);

/// Merges the axes `start` to `end` (inclusive) into one, as torch.flatten; both may count from the
/// end. A scalar becomes one element. Error{kUsage} if `start` is after `end`.
Tensor flatten(TensorArg t, int64_t start, int64_t end = -1);

/// Inserts an axis of size 1 that is `axis` of the result, as numpy.expand_dims. The axis may count
/// from the end of the result.
Tensor unsqueeze(TensorArg t, int64_t axis);
/// Inserts several axes of size 1. Error{kUsage} if an axis is out of range or given twice.
Tensor unsqueeze(TensorArg t, const std::vector<int64_t>& axes);

/// Drops all axes of size 1.
Tensor squeeze(TensorArg t);
/// Drops the given axes. Error{kUsage} if an axis is not of size 1, out of range, or given twice.
Tensor squeeze(TensorArg t, const std::vector<int64_t>& axes);

/// Broadcasts t to `shape`, as numpy.broadcast_to. Returns t itself if it has that shape.
Tensor broadcast_to(TensorArg t, const Shape& shape);
/// broadcast_to, where -1 keeps the size of an axis of t, as torch.Tensor.expand. Error{kUsage} for
/// -1 on an axis that t lacks.
Tensor expand(TensorArg t, const Shape& shape);

}  // namespace sluice::ops
