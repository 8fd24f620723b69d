#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

struct TransposeOptions {
  std::vector<int64_t> permutation = {};
  static auto fields(auto&& use) {
    return use(required_field("permutation", &TransposeOptions::permutation,
                              "Axis i of the result is axis permutation[i] of the operand."));
  }
};

const OpDef& transpose_def();
const OpDef& transpose_in_place_def();

/// Reverses the axes.
Tensor transpose(TensorArg t);
/// Permutes the axes, as numpy.transpose; axes may count from the end. Error{kUsage} unless each
/// axis is named once.
Tensor transpose(TensorArg t, const std::vector<int64_t>& permutation);
/// Exchanges two axes, as numpy.swapaxes; axes may count from the end.
Tensor swap_axes(TensorArg t, int64_t a, int64_t b);
/// transpose as a view: a later write to t or to the view is visible through both.
Tensor transpose_(TensorArg t);
Tensor transpose_(TensorArg t, const std::vector<int64_t>& permutation);

}  // namespace sluice::ops
