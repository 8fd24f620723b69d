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
/// The *tanh* approximation of GELU (Hendrycks and Gimpel, 2016), not PyTorch's default, which is
/// gelu_erf(): x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))).
Tensor gelu(TensorArg x);
Tensor gelu_(TensorArg x);
/// GELU without approximation, as PyTorch's default: x·Φ(x) = x/2·(1 + erf(x/√2)).
Tensor gelu_erf(TensorArg x);
Tensor geluerf_(TensorArg x);
/// x·σ(x), also called SiLU.
Tensor swish(TensorArg x);
Tensor swish_(TensorArg x);
/// σ(x) = 1 / (1 + e⁻ˣ).
Tensor sigmoid(TensorArg x);
Tensor tanh(TensorArg x);

}  // namespace sluice::ops
