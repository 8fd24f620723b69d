#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct CastOptions {
  DType dtype = f32;  ///< Of the result.
  static constexpr auto fields = std::tuple{field("dtype", &CastOptions::dtype)};
};

const OpDef& cast_def();

/// x in another dtype. Floating point rounds to nearest even; to integers it is truncated towards
/// zero and saturates, NaN becomes 0; integers wrap around among each other; bool is "not zero". x
/// itself, without an op, if it has that dtype already.
Tensor cast(TensorArg x, DType dtype);

}  // namespace sluice::ops
