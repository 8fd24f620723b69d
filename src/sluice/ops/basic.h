#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

const OpDef& identity_def();
const OpDef& detach_def();

/// The same value under another name (default: the operator's).
Tensor identity(TensorArg x, std::string name = "");
/// The same value; gradients stop here.
Tensor detach(TensorArg x);
/// The same storage; gradients stop here.
Tensor detach_(TensorArg x);

enum class InitType { kZero, kUndefined };

/// A new tensor of zeros, or of whatever is there, to be overwritten.
Tensor init(Graph& graph, const TensorSpec& spec, InitType type = InitType::kZero,
            std::string name = "");
/// A new tensor filled with `value`.
Tensor init(Graph& graph, const TensorSpec& spec, double value, std::string name = "");

}  // namespace sluice::ops
