#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct TakeAlongAxisOptions {
  int64_t axis = -1;
  bool zero_out_of_range = false;
  static auto fields(auto&& use) {
    return use(
        field("axis", &TakeAlongAxisOptions::axis, "Axis to index; negative counts from the end."),
        field("zero_out_of_range", &TakeAlongAxisOptions::zero_out_of_range,
              "Write zeros, not NaN, for an index outside the axis."));
  }
};

struct AddAlongAxisOptions {
  int64_t axis = -1;
  int64_t size = 0;
  static auto fields(auto&& use) {
    return use(
        field("axis", &AddAlongAxisOptions::axis, "Axis to index; negative counts from the end."),
        required_field("size", &AddAlongAxisOptions::size, "Size of that axis in the result."));
  }
};

/// How scatter_reduce() combines the terms of an element.
enum class ScatterReduction {
  kSum,
  kMean,
  kMax,  ///< The largest term; NaN if there is one.
  kMin,  ///< The smallest term; NaN if there is one.
};
constexpr std::string_view words_of(ScatterReduction) { return "sum,mean,max,min"; }

struct ScatterReduceOptions {
  int64_t axis = -1;
  ScatterReduction reduction = ScatterReduction::kSum;
  bool include_self = true;
  static auto fields(auto&& use) {
    return use(
        field("axis", &ScatterReduceOptions::axis, "Axis to index; negative counts from the end."),
        field("reduction", &ScatterReduceOptions::reduction,
              "How the terms of an element are combined."),
        field("include_self", &ScatterReduceOptions::include_self,
              "Whether the former element is a term too. Otherwise it stays only where no index "
              "points to."));
  }
};

const OpDef& take_along_axis_def();
const OpDef& add_along_axis_def();
const OpDef& scatter_reduce_def();

/// Takes the element of t at each index along an axis, as numpy.take_along_axis and torch.gather:
/// y[i][j] = t[indices[i][j]][j] for axis 0 of two. `indices` is int32 or uint32 and has t's shape,
/// except along the axis. An index outside [0, size) yields NaN (zero for integers and bool), or
/// zero with `zero_out_of_range`.
Tensor take_along_axis(TensorArg t, TensorArg indices, const TakeAlongAxisOptions& options = {});

/// Adds each element of t to zeros at its index along an axis, in the order of the indices:
/// y[indices[i][j]][j] += t[i][j] for axis 0 of two, as torch.scatter_add on zeros. Indices out of
/// range add nothing. It is the gradient of take_along_axis.
Tensor add_along_axis(TensorArg t, TensorArg indices, const AddAlongAxisOptions& options);

/// Combines elements of t with the elements of `source` whose indices along an axis point to them,
/// in the order of the indices, as torch.Tensor.scatter_reduce. For a sum and axis 0 of two, y = t
/// and then y[indices[i][j]][j] += source[i][j]. `indices` is int32 or uint32 and has the shape of
/// t except along the axis. `source` has the shape of `indices` and the dtype of t. Indices out of
/// range add no term. Equal maxima (minima) share the gradient equally. Without include_self, only
/// terms share it; torch also divides by an element of t that equals the result.
Tensor scatter_reduce(TensorArg t, TensorArg source, TensorArg indices,
                      const ScatterReduceOptions& options = {});

/// scatter_reduce() of whole slices, as torch.Tensor.index_reduce: `indices` has one axis, and
/// `source` the shape of t with the axis replaced by that of the indices. It is composed of other
/// operators. Error{kUsage} if t is a scalar or indices has not one axis.
Tensor index_reduce(TensorArg t, TensorArg source, TensorArg indices,
                    const ScatterReduceOptions& options = {});

/// The number of occurrences of each of 0, 1, …, size - 1 among the elements of an int32 or uint32
/// tensor, as float32. Other elements are not counted. Exact up to 2²⁴ occurrences.
Tensor bincount(TensorArg indices, int64_t size);

/// The number of elements in each of `bins` equal parts of [min, max], as float32, like torch.histc
/// (the last part includes max). Elements outside and NaN are not counted. Error{kUsage} unless t
/// is floating point, bins at least 1 and min below max.
Tensor histogram(TensorArg t, int64_t bins, double min, double max);

}  // namespace sluice::ops
