#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct ConcatOptions {
  int64_t axis = 0;  ///< Axis to join along; negative counts from the end.
  static auto fields(auto&& use) { return use(field("axis", &ConcatOptions::axis)); }
};

struct SplitOptions {
  std::vector<int64_t> sizes = {};  ///< Sizes of the parts along the axis.
  int64_t axis = 0;                 ///< Axis to cut; negative counts from the end.
  static auto fields(auto&& use) {
    return use(field("sizes", &SplitOptions::sizes), field("axis", &SplitOptions::axis));
  }
};

const OpDef& concat_def();
const OpDef& concat_in_place_def();
const OpDef& split_def();

/// Joins one or more tensors along `axis`; all other axes must have equal sizes. Error{kUsage} if
/// `ts` is empty.
Tensor concat(const std::vector<TensorArg>& ts, int64_t axis = 0,
              std::source_location where = std::source_location::current());
/// Joins one or more tensors of equal shapes along a new axis, which is `axis` of the result, as
/// numpy.stack. Error{kUsage} if `ts` is empty.
Tensor stack(const std::vector<TensorArg>& ts, int64_t axis = 0,
             std::source_location where = std::source_location::current());
/// concat as a view: a later write to the view changes the tensors `ts`, and a later write to one
/// of `ts` changes the view.
Tensor concat_(const std::vector<TensorArg>& ts, int64_t axis = 0,
               std::source_location where = std::source_location::current());

/// Cuts t into `parts` equal parts along `axis`. Error{kUsage} unless `parts` divides the size of
/// the axis.
Tensors split(TensorArg t, int64_t parts, int64_t axis = 0);
/// Cuts t along `axis` into parts of the given sizes. Error{kUsage} unless they sum to the size of
/// the axis.
Tensors split(TensorArg t, const std::vector<int64_t>& sizes, int64_t axis = 0);

}  // namespace sluice::ops
