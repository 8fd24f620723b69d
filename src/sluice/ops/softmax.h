#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct AxisOptions {
  int64_t axis = -1;
  static auto fields(auto&& use) {
    return use(field("axis", &AxisOptions::axis, "Axis; negative counts from the end."));
  }
};

const OpDef& softmax_def();
const OpDef& log_softmax_def();
const OpDef& softmax_grad_def();
const OpDef& log_softmax_grad_def();

/// Returns eˣ/Σeˣ along `axis`, computed from eˣ⁻ᵐᵃˣ, which cannot overflow. A scalar has one
/// axis, 0 or -1.
Tensor softmax(TensorArg t, int64_t axis = -1);
/// Returns x - log Σeˣ along `axis`, computed from eˣ⁻ᵐᵃˣ, which cannot overflow. A scalar
/// has one axis, 0 or -1.
Tensor log_softmax(TensorArg t, int64_t axis = -1);

}  // namespace sluice::ops
