#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct CastOptions {
  DType dtype = f32;
  static auto fields(auto&& use) {
    return use(required_field("dtype", &CastOptions::dtype, "Dtype of the result."));
  }
};

const OpDef& cast_def();

/// Casts x to `dtype`; returns x itself, without an op, if it already has that dtype. Floating
/// point rounds to nearest even. Casts from floating point to integers truncate toward zero and
/// saturate; NaN becomes 0. Casts between integers wrap around. A cast to bool returns x != 0.
Tensor cast(TensorArg x, DType dtype);

}  // namespace sluice::ops
