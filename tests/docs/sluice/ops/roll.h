#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct RollOptions {
  int64_t shift = 1;  ///< Places that elements move to the right; negative: to the left.
  static constexpr auto fields = std::tuple{field("shift", &RollOptions::shift)};
};

const OpDef& roll_def();

/// Returns y with y[…, (i + shift) mod n] = x[…, i]. n is the size of the last axis.
Tensor roll(TensorArg x, const RollOptions& options = {});

}  // namespace sluice::ops
