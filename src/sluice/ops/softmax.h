#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct AxisOptions {
  int64_t axis = -1;  ///< Negative from the end.
  static constexpr auto fields = std::tuple{field("axis", &AxisOptions::axis)};
};

const OpDef& softmax_def();
const OpDef& log_softmax_def();
const OpDef& softmax_grad_def();
const OpDef& log_softmax_grad_def();

/// eˣ/Σeˣ along `axis`, computed as eˣ⁻ᵐᵃˣ so that nothing overflows. Not for scalars.
Tensor softmax(TensorArg t, int64_t axis = -1);
/// x - log Σeˣ along `axis`, with the same care.
Tensor log_softmax(TensorArg t, int64_t axis = -1);

}  // namespace sluice::ops
