#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

const OpDef& add_n_def();

/// Adds one or more tensors of one spec, from left to right. f16 and bf16 results are rounded once.
/// `transforms::decompose_sum` replaces the op with a chain of adds.
Tensor add_n(const std::vector<TensorArg>& ts,
             std::source_location where = std::source_location::current());

}  // namespace sluice::ops
