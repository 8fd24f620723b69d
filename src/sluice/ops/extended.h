#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

const OpDef& add_extended_def();
const OpDef& sqrt_extended_def();

/// Norms of tensors whose sums of squares may overflow float32: sqrt_extended() of sums, by
/// add_extended(), of results of sumsquare_extended() (reductions.h). The sums are in the extended
/// range of numbers/extended_range.h: a sum that overflows is stored as minus the sum times 2^-160.
/// The bits are those of sumsquare(), add() and sqrt() if no sum overflows.
///
/// a + b, elementwise with broadcasting; float32.
Tensor add_extended(TensorArg a, TensorArg b);
/// √x, a plain number; float32. If the root of a finite x is above the largest float32, the result
/// is the largest float32.
Tensor sqrt_extended(TensorArg x);

}  // namespace sluice::ops
