#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct TransposeOptions {
  std::vector<int64_t>
      permutation;  ///< Axis i of the result is axis permutation[i] of the operand.
  static constexpr auto fields = std::tuple{field("permutation", &TransposeOptions::permutation)};
};

const OpDef& transpose_def();
const OpDef& transpose_in_place_def();

/// Reverses the axes.
Tensor transpose(TensorArg t);
/// numpy.transpose; axes may count from the end. Error{kUsage} unless each axis is named once.
Tensor transpose(TensorArg t, const std::vector<int64_t>& permutation);
/// The same as another handle on t: what is written to one is seen through the other.
Tensor transpose_(TensorArg t);
Tensor transpose_(TensorArg t, const std::vector<int64_t>& permutation);

}  // namespace sluice::ops
