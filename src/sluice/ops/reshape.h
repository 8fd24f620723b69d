#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

/// Shape of a reshape's or broadcast's result.
struct ShapeOptions {
  Shape shape;  ///< Every dimension, without -1.
  static constexpr auto fields = std::tuple{field("shape", &ShapeOptions::shape)};
};

const OpDef& reshape_def();
const OpDef& reshape_inplace_def();
const OpDef& broadcast_to_def();

/// The same elements in row-major order under another shape; at most one dimension may be -1 and is
/// then inferred. Error{kUsage} for several -1, other negative dimensions, or a different number of
/// elements.
Tensor reshape(TensorArg t, const Shape& shape);
/// The same as another handle on t's storage: a later write to either is seen through both.
Tensor reshape_(TensorArg t, const Shape& shape);

/// One dimension.
Tensor flatten(TensorArg t);
/// One dimension, as another handle on t's storage.
Tensor flatten_(TensorArg t);

/// Drops all axes of size 1.
Tensor squeeze(TensorArg t);
/// Drops the given axes; Error{kUsage} if one is not of size 1, out of range, or given twice.
Tensor squeeze(TensorArg t, const std::vector<int64_t>& axes);

/// numpy.broadcast_to; `t` itself if it has that shape.
Tensor broadcast_to(TensorArg t, const Shape& shape);

}  // namespace sluice::ops
