#pragma once
#include <optional>

#include "sluice/ops/op.h"

namespace sluice::ops {

/// For each axis of the operand: the first element taken, how many, and +1 or -1.
struct SliceOptions {
  std::vector<int64_t> starts;
  std::vector<int64_t> sizes;
  std::vector<int64_t> steps;
  static constexpr auto fields =
      std::tuple{field("starts", &SliceOptions::starts), field("sizes", &SliceOptions::sizes),
                 field("steps", &SliceOptions::steps)};
};

struct SliceGradOptions {
  std::vector<int64_t> starts;
  std::vector<int64_t> sizes;
  std::vector<int64_t> steps;
  Shape shape;  ///< Of the sliced operand.
  static constexpr auto fields = std::tuple{
      field("starts", &SliceGradOptions::starts), field("sizes", &SliceGradOptions::sizes),
      field("steps", &SliceGradOptions::steps), field("shape", &SliceGradOptions::shape)};
};

const OpDef& slice_def();
const OpDef& slice_in_place_def();
const OpDef& slice_grad_def();
const OpDef& update_slice_def();

/// A bound of a slice; nothing means from the end where the slice starts, or to the other.
using SliceBounds = std::vector<std::optional<int64_t>>;

/// t[start:stop:step] along each of `axes`, as numpy: bounds may count from the end and are
/// clamped; a step is 1 or -1. A list that is empty counts as all "nothing" (steps: all 1; axes: 0,
/// 1, …); the others have the same length. `t` itself if no bound and no step is given.
/// Error{kUsage} for lists of different lengths, more entries than axes, an axis given twice or
/// another step.
Tensor slice(TensorArg t, const SliceBounds& start, const SliceBounds& stop = {},
             const SliceBounds& step = {}, const std::vector<int64_t>& axes = {});
/// The same elements as another handle on t: what is written to one is seen through the other.
Tensor slice_(TensorArg t, const SliceBounds& start, const SliceBounds& stop = {},
              const SliceBounds& step = {}, const std::vector<int64_t>& axes = {});

/// Writes y over the elements of t that the options name, which y has the shape of; returns t's new handle.
Tensor update_slice_(TensorArg t, TensorArg y, const SliceOptions& options);
/// Writes y, of t's shape, over all of t.
Tensor update_slice_(TensorArg t, TensorArg y);

}  // namespace sluice::ops
