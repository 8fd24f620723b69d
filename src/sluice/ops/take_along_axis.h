#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct TakeAlongAxisOptions {
  int64_t axis = -1;               ///< Axis to index; negative counts from the end.
  bool zero_out_of_range = false;  ///< Write zeros, not NaN, for an index outside the axis.
  static auto fields(auto&& use) {
    return use(field("axis", &TakeAlongAxisOptions::axis),
               field("zero_out_of_range", &TakeAlongAxisOptions::zero_out_of_range));
  }
};

struct AddAlongAxisOptions {
  int64_t axis = -1;  ///< Axis to index; negative counts from the end.
  int64_t size = 0;   ///< Size of that axis in the result.
  static auto fields(auto&& use) {
    return use(field("axis", &AddAlongAxisOptions::axis),
               field("size", &AddAlongAxisOptions::size));
  }
};

const OpDef& take_along_axis_def();
const OpDef& add_along_axis_def();

/// Takes the element of t at each index along an axis, as numpy.take_along_axis and torch.gather:
/// y[i][j] = t[indices[i][j]][j] for axis 0 of two. `indices` is int32 or uint32 and has t's shape,
/// except along the axis. An index outside [0, size) yields NaN (zero for integers and bool), or
/// zero with `zero_out_of_range`.
Tensor take_along_axis(TensorArg t, TensorArg indices, const TakeAlongAxisOptions& options = {});

/// Adds each element of t to zeros at its index along an axis, in the order of the indices:
/// y[indices[i][j]][j] += t[i][j] for axis 0 of two, as torch.scatter_add on zeros. Indices out of
/// range add nothing. It is the gradient of take_along_axis.
Tensor add_along_axis(TensorArg t, TensorArg indices, const AddAlongAxisOptions& options);

/// The number of occurrences of each of 0, 1, …, size - 1 among the elements of an int32 or uint32
/// tensor, as float32. Other elements are not counted. Exact up to 2²⁴ occurrences.
Tensor bincount(TensorArg indices, int64_t size);

/// The number of elements in each of `bins` equal parts of [min, max], as float32, like torch.histc
/// (the last part includes max). Elements outside and NaN are not counted. Error{kUsage} unless t
/// is floating point, bins at least 1 and min below max.
Tensor histogram(TensorArg t, int64_t bins, double min, double max);

}  // namespace sluice::ops
