#pragma once
#include "sluice/ops/hypers.h"

namespace sluice::ops {

struct SparseAccumulateOptions {
  int64_t axis = 0;      ///< Of t; negative from the end.
  double f = 1;          ///< The factor.
  std::string operands;  ///< "f" if that is an operand.
  static constexpr auto fields = std::tuple{field("axis", &SparseAccumulateOptions::axis),
                                            field("f", &SparseAccumulateOptions::f),
                                            field("operands", &SparseAccumulateOptions::operands)};
};

const OpDef& sparse_accumulate_def();

/// t += f·x at `indices` along `axis`: what gather took from t is updated without a gradient of t's
/// size. `x` has t's shape with the axis replaced by the indices' (int32 or uint32, any shape);
/// slices are added in ascending order of their place, indices outside the axis add nothing.
/// Writes t and returns a new handle to its storage; x may be of another floating-point dtype. No
/// gradient.
Tensor sparse_accumulate_(TensorArg t, TensorArg x, TensorArg indices, int64_t axis = 0,
                          const HyperArg& f = 1.0);

}  // namespace sluice::ops
