#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct CumsumOptions {
  int64_t axis = 0;
  bool exclusive = false;
  bool reverse = false;
  static auto fields(auto&& use) {
    return use(
        field("axis", &CumsumOptions::axis, "Axis to add along; negative counts from the end."),
        field("exclusive", &CumsumOptions::exclusive,
              "Element i is the sum of the elements before it."),
        field("reverse", &CumsumOptions::reverse, "Add from the last element to the first."));
  }
};

struct CumprodOptions {
  int64_t axis = 0;
  static auto fields(auto&& use) {
    return use(field("axis", &CumprodOptions::axis,
                     "Axis to multiply along; negative counts from the end."));
  }
};

const OpDef& cumsum_def();
const OpDef& cumprod_def();
const OpDef& cumprod_grad_def();

/// Cumulative sums along an axis, as numpy.cumsum: element i is the sum of the elements up to i,
/// added one after the other. Sums of f16 and bf16 are computed in f32 and rounded once each;
/// integers wrap around. A scalar has one axis.
Tensor cumsum(TensorArg t, const CumsumOptions& options = {});

/// Cumulative products along an axis, as numpy.cumprod. Otherwise as cumsum(). A second derivative
/// needs n² elements for each lane of n.
Tensor cumprod(TensorArg t, const CumprodOptions& options = {});

}  // namespace sluice::ops
