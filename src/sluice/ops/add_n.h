#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

const OpDef& add_n_def();

/// The sum of one or more tensors of one spec, added from the left; f16 and bf16 are rounded once.
/// `transforms::decompose_sum` turns it into a chain of adds.
Tensor add_n(const std::vector<TensorArg>& ts);

}  // namespace sluice::ops
