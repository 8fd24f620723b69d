#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct RotateOptions {
  int64_t shift = 1;  ///< Places that elements move to the right; negative: to the left.
  static auto fields(auto&& use) { return use(field("shift", &RotateOptions::shift)); }
};

const OpDef& rotate_def();

/// Returns y with y[…, (i + shift) mod n] = x[…, i]. n is the size of the last axis.
Tensor rotate(TensorArg x, const RotateOptions& options = {});

}  // namespace sluice::ops
