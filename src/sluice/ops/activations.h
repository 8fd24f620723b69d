#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

const OpDef& relu_def();
const OpDef& gelu_def();
const OpDef& gelu_erf_def();
const OpDef& swish_def();
const OpDef& sigmoid_def();
const OpDef& tanh_def();

/// Elementwise functions of floating-point tensors. The functions with `_` overwrite x and return a
/// new handle to its storage.

/// max(0, x).
Tensor relu(TensorArg x);
Tensor relu_(TensorArg x);
/// x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))): Hendrycks and Gimpel's approximation of x·Φ(x).
Tensor gelu(TensorArg x);
Tensor gelu_(TensorArg x);
/// x·Φ(x) = x/2·(1 + erf(x/√2)).
Tensor gelu_erf(TensorArg x);
Tensor geluerf_(TensorArg x);
/// x·σ(x), also called SiLU.
Tensor swish(TensorArg x);
Tensor swish_(TensorArg x);
/// σ(x) = 1 / (1 + e⁻ˣ).
Tensor sigmoid(TensorArg x);
Tensor tanh(TensorArg x);

}  // namespace sluice::ops
