#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct ArgOptions {
  int64_t axis = 0;       ///< Axis to search; negative counts from the end.
  bool flatten = false;   ///< Search all elements in row-major order; `axis` is not used.
  bool keepdims = false;  ///< Keep reduced axes with size 1.
  static auto fields(auto&& use) {
    return use(field("axis", &ArgOptions::axis), field("flatten", &ArgOptions::flatten),
               field("keepdims", &ArgOptions::keepdims));
  }
};

const OpDef& argmax_def();
const OpDef& argmin_def();

/// Returns the position (int32) of the first largest or smallest element along an axis. A NaN
/// counts as larger (argmax) or smaller (argmin) than any number, so the first NaN wins, as in
/// numpy. There is no gradient.
Tensor argmax(TensorArg t, const ArgOptions& options = {});
Tensor argmin(TensorArg t, const ArgOptions& options = {});

}  // namespace sluice::ops
