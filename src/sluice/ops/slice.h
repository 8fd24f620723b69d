#pragma once
#include <optional>

#include "sluice/ops/op.h"

namespace sluice::ops {

/// For each axis of the operand: index of the first element, number of elements, and step (not 0).
struct SliceOptions {
  std::vector<int64_t> starts = {};
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> steps = {};
  static auto fields(auto&& use) {
    return use(
        field("starts", &SliceOptions::starts, "Index of the first element along each axis."),
        field("sizes", &SliceOptions::sizes, "Number of elements along each axis."),
        field("steps", &SliceOptions::steps, "Step along each axis, not 0."));
  }
};

struct SliceGradOptions {
  std::vector<int64_t> starts = {};
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> steps = {};
  Shape shape = {};
  static auto fields(auto&& use) {
    return use(
        field("starts", &SliceGradOptions::starts, "Index of the first element along each axis."),
        field("sizes", &SliceGradOptions::sizes, "Number of elements along each axis."),
        field("steps", &SliceGradOptions::steps, "Step along each axis, not 0."),
        field("shape", &SliceGradOptions::shape, "Shape of the sliced operand."));
  }
};

const OpDef& slice_def();
const OpDef& slice_in_place_def();
const OpDef& slice_grad_def();
const OpDef& update_slice_def();
const OpDef& update_row_def();

/// Bounds of a slice, one per axis. An absent start is the first element in the direction of the
/// step; an absent stop is after the last element.
using SliceBounds = std::vector<std::optional<int64_t>>;

/// Returns t[start:stop:step] along each of `axes`, as numpy. Bounds may count from the end and are
/// clamped; a negative step goes backwards. The lists have equal lengths. A list may also be empty:
/// absent bounds, steps of 1, or axes 0, 1, and so on. Returns t itself if no bound and no step is
/// given. Error{kUsage} for lists of different lengths, more entries than axes, an axis given
/// twice, or a step of 0.
Tensor slice(TensorArg t, const SliceBounds& start, const SliceBounds& stop = {},
             const SliceBounds& step = {}, const std::vector<int64_t>& axes = {});
/// slice as a view: a later write to t or to the view is visible through both.
Tensor slice_(TensorArg t, const SliceBounds& start, const SliceBounds& stop = {},
              const SliceBounds& step = {}, const std::vector<int64_t>& axes = {});

/// Returns t[index] along `axis`, which is dropped. The index and the axis may count from the end.
/// Error{kUsage} for an index or axis out of range.
Tensor select(TensorArg t, int64_t index, int64_t axis = 0);

/// Reverses the order of the elements along the axes, or along all axes, as numpy.flip.
/// Error{kUsage} for an axis out of range or given twice.
Tensor flip(TensorArg t, const std::vector<int64_t>& axes = {});

/// Overwrites with y the elements of t that the options select. y must have the shape of the slice.
/// Returns the new handle to t.
Tensor update_slice_(TensorArg t, TensorArg y, const SliceOptions& options);
/// Overwrites all of t with y, which must have t's shape.
Tensor update_slice_(TensorArg t, TensorArg y);
/// Overwrites t[index] with y: a row of the first axis. `index` is an int32 or uint32 scalar. y has
/// the shape of t without its first axis. An index outside the axis writes nothing. gather(t,
/// index) reads the row. Returns the new handle to t.
Tensor update_row_(TensorArg t, TensorArg y, TensorArg index);

}  // namespace sluice::ops
