#pragma once
#include "sluice/ops/hypers.h"

namespace sluice::ops {

struct SparseAccumulateOptions {
  int64_t axis = 0;
  double f = 1;
  std::string operands = {};
  static auto fields(auto&& use) {
    return use(
        field("axis", &SparseAccumulateOptions::axis, "Axis of t; negative counts from the end."),
        field("f", &SparseAccumulateOptions::f, "Factor of x."),
        field("operands", &SparseAccumulateOptions::operands,
              "\"f\" if f is an operand, else empty."));
  }
};

const OpDef& sparse_accumulate_def();

/// Computes t += f·x at `indices` along `axis`: the update of the slices that gather took, without
/// a gradient of t's size. `x` has the shape of t with the axis replaced by the shape of `indices`
/// (int32 or uint32, any shape). x may have another floating-point dtype than t. Slices are added
/// in the order of `indices`; indices outside the axis add nothing. Writes t and returns a new
/// handle to its storage.
Tensor sparse_accumulate_(TensorArg t, TensorArg x, TensorArg indices, int64_t axis = 0,
                          const HyperArg& f = 1.0);

}  // namespace sluice::ops
