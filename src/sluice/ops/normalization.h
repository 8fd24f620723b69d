#pragma once
#include "sluice/ops/op.h"

/// Norms; docs/design/0015-convolution-and-norms.md has the order of their sums.
namespace sluice::ops {

/// Options of layer_norm() and its gradient.
struct LayerNormOptions {
  double epsilon = 1e-5;
  static auto fields(auto&& use) {
    return use(field("epsilon", &LayerNormOptions::epsilon, "Added to the variance."));
  }
};

/// Options of group_norm() and its gradient.
struct GroupNormOptions {
  int64_t groups = 1;
  double epsilon = 1e-5;
  static auto fields(auto&& use) {
    return use(field("groups", &GroupNormOptions::groups,
                     "Groups of channels that are normalized apart; divides the channels."),
               field("epsilon", &GroupNormOptions::epsilon, "Added to the variance."));
  }
};

const OpDef& layer_norm_def();
const OpDef& layer_norm_grad_def();
const OpDef& group_norm_def();
const OpDef& group_norm_grad_def();

/// Returns (x - mean) / √(variance + epsilon)·weight + bias with the mean and the biased variance
/// of each row: the last axis of x. weight and bias have one element for each column. To normalize
/// several axes, reshape them to one.
///
/// The gradient reads x, weight and the incoming gradient; it computes the statistics again.
Tensor layer_norm(TensorArg x, TensorArg weight, TensorArg bias,
                  const LayerNormOptions& options = {});
/// Does the same with `parameters`: none, weight, or weight and bias.
Tensor layer_norm(TensorArg x, const std::vector<TensorArg>& parameters,
                  const LayerNormOptions& options = {});

/// Returns (x - mean) / √(variance + epsilon)·weight + bias. x is (batch, channels, spatial…). The
/// mean and the biased variance are those of a group of successive channels of one sample. weight
/// and bias have one element for each channel. With one channel for each group this is instance
/// norm.
///
/// The gradient reads x, weight and the incoming gradient; it computes the statistics again.
Tensor group_norm(TensorArg x, TensorArg weight, TensorArg bias,
                  const GroupNormOptions& options = {});
/// Does the same with `parameters`: none, weight, or weight and bias.
Tensor group_norm(TensorArg x, const std::vector<TensorArg>& parameters,
                  const GroupNormOptions& options = {});

/// Options of rms_norm() and its gradient.
struct RmsNormOptions {
  double epsilon = 0x1p-23;
  static auto fields(auto&& use) {
    return use(field("epsilon", &RmsNormOptions::epsilon,
                     "Added to the mean of the squares; default: that of PyTorch."));
  }
};

const OpDef& rms_norm_def();
const OpDef& rms_norm_grad_def();

/// Returns x / √(mean(x²) + epsilon)·weight with the mean of the squares of each row: the last axis
/// of x (Zhang and Sennrich, 2019). weight has one element for each column. To normalize several
/// axes, reshape them to one.
///
/// The gradient reads x, weight and the incoming gradient; it computes the means again.
Tensor rms_norm(TensorArg x, TensorArg weight, const RmsNormOptions& options = {});
/// Does the same without a weight.
Tensor rms_norm(TensorArg x, const RmsNormOptions& options = {});

/// Options of batch_norm() and batch_norm_inference().
struct BatchNormOptions {
  double epsilon = 1e-5;
  static auto fields(auto&& use) {
    return use(field("epsilon", &BatchNormOptions::epsilon, "Added to the variance."));
  }
};

/// Options of batch_norm_grad.
struct BatchNormGradOptions {
  double epsilon = 1e-5;
  bool training = true;
  static auto fields(auto&& use) {
    return use(
        field("epsilon", &BatchNormGradOptions::epsilon, "Added to the variance."),
        field("training", &BatchNormGradOptions::training,
              "Whether mean and variance were computed from x, so that they change with x."));
  }
};

const OpDef& batch_norm_def();
const OpDef& batch_norm_inference_def();
const OpDef& batch_norm_scale_def();
const OpDef& batch_norm_grad_def();

/// Normalizes each channel of x (batch, channels, spatial…) by its mean and its biased variance
/// over the batch and all positions: y = (x - mean) / √(variance + epsilon)·weight + bias. weight
/// and bias have one element for each channel. Returns y, mean and variance.
///
/// The caller updates running statistics from mean and variance. PyTorch stores the unbiased
/// variance: variance·n / (n - 1) for n values in a channel. Error{kUsage} if a channel has one
/// value. Without values, mean and variance are 0.
Tensors batch_norm(TensorArg x, TensorArg weight, TensorArg bias,
                   const BatchNormOptions& options = {});
/// Does the same with `parameters`: none, weight, or weight and bias.
Tensors batch_norm(TensorArg x, const std::vector<TensorArg>& parameters,
                   const BatchNormOptions& options = {});

/// Returns the y of batch_norm() for a given mean and variance of each channel.
Tensor batch_norm_inference(TensorArg x, TensorArg weight, TensorArg bias, TensorArg mean,
                            TensorArg variance, const BatchNormOptions& options = {});
/// Does the same with `parameters`: none, weight, or weight and bias.
Tensor batch_norm_inference(TensorArg x, const std::vector<TensorArg>& parameters, TensorArg mean,
                            TensorArg variance, const BatchNormOptions& options = {});

}  // namespace sluice::ops
