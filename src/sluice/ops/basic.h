#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

const OpDef& identity_def();
const OpDef& detach_def();

/// Returns the value of x under another name (default: the name of the operator).
Tensor identity(TensorArg x, std::string name = "");
/// Returns the value of x and blocks gradients.
Tensor detach(TensorArg x);
/// Returns another handle to the storage of x and blocks gradients.
Tensor detach_(TensorArg x);

enum class InitType { kZero, kUndefined };
constexpr std::string_view words_of(InitType) { return "zero,undefined"; }

/// Makes a new tensor of zeros, or with undefined contents that must be overwritten.
Tensor init(Graph& graph, const TensorSpec& spec, InitType type = InitType::kZero,
            std::string name = "");
/// Makes a new tensor filled with `value`. Error{kUsage} if its dtype cannot hold `value`.
Tensor init(Graph& graph, const TensorSpec& spec, double value, std::string name = "");

}  // namespace sluice::ops
