#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct ConcatOptions {
  int64_t axis = 0;  ///< Negative from the end.
  static constexpr auto fields = std::tuple{field("axis", &ConcatOptions::axis)};
};

struct SplitOptions {
  std::vector<int64_t> sizes;  ///< Of the parts along the axis.
  int64_t axis = 0;            ///< Negative from the end.
  static constexpr auto fields =
      std::tuple{field("sizes", &SplitOptions::sizes), field("axis", &SplitOptions::axis)};
};

const OpDef& concat_def();
const OpDef& concat_in_place_def();
const OpDef& split_def();

/// Joins one or more tensors that agree in all other axes. Error{kUsage} for none.
Tensor concat(const std::vector<TensorArg>& ts, int64_t axis = 0);
/// The same as another handle on the tensors: what is written to it is seen through them, and the other way round.
Tensor concat_(const std::vector<TensorArg>& ts, int64_t axis = 0);

/// Cuts into `parts` equal parts; Error{kUsage} unless `parts` divides the axis.
Tensors split(TensorArg t, int64_t parts, int64_t axis = 0);
/// Cuts into parts of the given sizes, which sum to the axis.
Tensors split(TensorArg t, const std::vector<int64_t>& sizes, int64_t axis = 0);

}  // namespace sluice::ops
