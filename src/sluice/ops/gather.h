#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct GatherOptions {
  int64_t axis = 0;                ///< Negative from the end.
  bool zero_out_of_range = false;  ///< Elements of an index outside the axis are zero.
  static constexpr auto fields =
      std::tuple{field("axis", &GatherOptions::axis),
                 field("zero_out_of_range", &GatherOptions::zero_out_of_range)};
};

struct GatherGradOptions {
  int64_t axis = 0;  ///< Of the gathered operand, from the front.
  int64_t size = 0;  ///< Of that axis.
  static constexpr auto fields =
      std::tuple{field("axis", &GatherGradOptions::axis), field("size", &GatherGradOptions::size)};
};

struct OnehotOptions {
  int64_t classes = 0;
  int64_t axis = -1;  ///< Place of the new axis in the result; negative from its end.
  static constexpr auto fields =
      std::tuple{field("classes", &OnehotOptions::classes), field("axis", &OnehotOptions::axis)};
};

const OpDef& gather_def();
const OpDef& gather_grad_def();
const OpDef& onehot_def();
const OpDef& onehot_grad_def();

/// numpy.take: t's slices along `axis` at `indices` (int32 or uint32, any shape, which replaces the
/// axis). An index outside [0, size) gives NaN (integers and bool: zero) unless
/// `zero_out_of_range`; there is no counting from the end.
Tensor gather(TensorArg t, TensorArg indices, const GatherOptions& options = {});

/// Zeros with the slices of `grad` added where `gather` took them, in ascending order of the
/// index's place; indices out of range add nothing.
Tensor gather_grad(TensorArg grad, TensorArg indices, const GatherGradOptions& options);

/// `values` = [off, on]: on where the position along the new axis is the index, else off. All off
/// for an index outside [0, classes).
Tensor onehot(TensorArg indices, TensorArg values, const OnehotOptions& options);

}  // namespace sluice::ops
