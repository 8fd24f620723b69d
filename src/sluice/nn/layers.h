#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "sluice/nn/module.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/pooling.h"
#include "sluice/ops/resample.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/softmax.h"
#include "sluice/ops/unary.h"

namespace sluice::nn {

enum class Bias { kNone, kAdd };

/// Distribution of a layer's first weights. Biases are zeros; with kUniform they have the
/// distribution of the weights.
enum class WeightInit {
  /// Normal with standard deviation 0.02, truncated at two standard deviations.
  kTruncatedNormal,
  /// Normal with standard deviation 0.02.
  kNormal,
  kHe,             ///< he_normal(fan_in): it keeps the variance through ReLU at any depth.
  kHeFanOut,       ///< he_normal(fan_out): it keeps the variance of gradients.
  kHeUniform,      ///< he_uniform(fan_in).
  kXavier,         ///< xavier_normal(fans).
  kXavierUniform,  ///< xavier_uniform(fans).
  kOrthogonal,     ///< orthogonal(shape of the weight).
  kUniform,        ///< fan_in_uniform(fan_in), like PyTorch's layers.
};

/// Computes x @ weight + bias over the last axis. The variables have x's dtype: `weight` (in, out),
/// initialized according to `init`, and `bias` (out).
class Linear : public Module {
 public:
  /// Error{kUsage} unless out_features >= 1.
  explicit Linear(int64_t out_features, Bias bias = Bias::kAdd,
                  WeightInit init = WeightInit::kTruncatedNormal);
  /// Maps x of shape (…, in) to a tensor of shape (…, out). Error{kUsage} for a scalar.
  Tensor build(Builder& b, Tensor x) const;
  std::string cache_key() const;

 private:
  int64_t out_features_;
  Bias bias_;
  WeightInit init_;
};

struct EmbeddingOptions {
  /// Row of the padding; may count from the end. Its first value is 0, and it gets no gradient from
  /// the layer.
  std::optional<int64_t> padding_index = {};
  DType dtype = f32;  ///< Type of the table.
};

/// Looks up rows of a table, as PyTorch's class: the variable `weight` (rows, width), with standard
/// normal first values. To use the table as the weight of an output too (tied weights), read it
/// after the layer was built, in the parent's build():
/// `ops::matmul(x, ops::transpose(b.variable("tokens.weight")))`. This use has a gradient by all
/// rows.
class Embedding : public Module {
 public:
  /// Error{kUsage} unless rows and width are at least 1 and padding_index is a row.
  Embedding(int64_t rows, int64_t width, EmbeddingOptions options = {});
  /// Maps int32 or uint32 indices of any shape to a tensor with one more axis, of `width` elements.
  /// An index outside of the table yields NaN, as in ops::gather(), and adds no gradient. It is not
  /// an error. Error{kUsage} for other dtypes.
  Tensor build(Builder& b, Tensor indices) const;
  std::string cache_key() const;

 private:
  int64_t rows_;
  int64_t width_;
  EmbeddingOptions options_;
};

/// Computes down_proj(silu(gate_proj(x)) · up_proj(x)) over the last axis (Shazeer, 2020), as the
/// perceptron of Llama. The three are Linear layers; gate_proj and up_proj have `hidden` elements,
/// the result as many as x.
class SwiGLU : public Module {
 public:
  /// Error{kUsage} unless hidden >= 1.
  explicit SwiGLU(int64_t hidden, Bias bias = Bias::kNone,
                  WeightInit init = WeightInit::kTruncatedNormal);
  Tensor build(Builder& b, Tensor x) const;
  std::string cache_key() const;

 private:
  int64_t hidden_;
  Bias bias_;
  WeightInit init_;
};

/// Options of Conv1d, Conv2d and Conv3d. A list has one number for all spatial axes, or one for
/// each.
struct ConvOptions {
  int64_t channels = 0;                ///< Channels of the result; at least 1.
  std::vector<int64_t> kernel = {};    ///< Taps.
  std::vector<int64_t> stride = {};    ///< Elements of x between two results; default 1.
  std::vector<int64_t> padding = {};   ///< Zeros around x; may be starts and then ends; default 0.
  std::vector<int64_t> dilation = {};  ///< Elements of x between two taps; default 1.
  int64_t groups = 1;                  ///< Groups of channels that are convolved apart.
  ops::PadType pad_type = ops::PadType::kExplicit;
  Bias bias = Bias::kAdd;
  WeightInit init = WeightInit::kUniform;
};

/// Options of ConvTranspose1d, 2d and 3d. The lists are as in ConvOptions.
struct ConvTransposeOptions {
  int64_t channels = 0;               ///< Channels of the result.
  std::vector<int64_t> kernel = {};   ///< Taps; one number represents all axes.
  std::vector<int64_t> stride = {};   ///< Elements of the result between two of x; default 1.
  std::vector<int64_t> padding = {};  ///< Elements cut from the result; default 0.
  std::vector<int64_t> output_padding = {};  ///< Elements added at the ends; default 0.
  std::vector<int64_t> dilation = {};      ///< Elements of the result between two taps; default 1.
  int64_t groups = 1;                      ///< Groups of channels that are convolved apart.
  Bias bias = Bias::kAdd;                  ///< Whether each channel gets a bias.
  WeightInit init = WeightInit::kUniform;  ///< First values of weight and bias.
};

namespace internal {

/// The convolutions of any number of axes.
class Convolution : public Module {
 public:
  Tensor build(Builder& b, Tensor x) const;
  std::string cache_key() const;

 protected:
  Convolution(int axes, ConvOptions options);

 private:
  int axes_;
  ConvOptions options_;
};

class TransposedConvolution : public Module {
 public:
  Tensor build(Builder& b, Tensor x) const;
  std::string cache_key() const;

 protected:
  TransposedConvolution(int axes, ConvTransposeOptions options);

 private:
  int axes_;
  ConvTransposeOptions options_;
};

}  // namespace internal

/// Maps x (batch, channels_in, spatial…) to ops::conv(x, weight) + bias. The variables have x's
/// dtype: `weight` (channels, channels_in / groups, taps…) and `bias` (channels). Constructors
/// throw Error{kUsage} for lists of wrong lengths and without channels. build() throws the errors
/// of ops::conv().
struct Conv1d : internal::Convolution {
  explicit Conv1d(const ConvOptions& options) : Convolution(1, options) {}
};
struct Conv2d : internal::Convolution {
  explicit Conv2d(const ConvOptions& options) : Convolution(2, options) {}
};
struct Conv3d : internal::Convolution {
  explicit Conv3d(const ConvOptions& options) : Convolution(3, options) {}
};

/// Maps x (batch, channels_in, spatial…) to ops::conv_transpose(x, weight) + bias, with `weight`
/// (channels_in, channels / groups, taps…) and `bias` (channels). Errors are as those of Conv2d.
struct ConvTranspose1d : internal::TransposedConvolution {
  explicit ConvTranspose1d(const ConvTransposeOptions& options)
      : TransposedConvolution(1, options) {}
};
struct ConvTranspose2d : internal::TransposedConvolution {
  explicit ConvTranspose2d(const ConvTransposeOptions& options)
      : TransposedConvolution(2, options) {}
};
struct ConvTranspose3d : internal::TransposedConvolution {
  explicit ConvTranspose3d(const ConvTransposeOptions& options)
      : TransposedConvolution(3, options) {}
};

/// The largest element of each window of x (batch, channels, height, width): ops::max_pool(). The
/// lists are as in ConvOptions; the stride is the kernel unless it is given.
class MaxPool2d : public Module {
 public:
  /// Error{kUsage} for lists of wrong lengths and without a kernel.
  explicit MaxPool2d(ops::PoolOptions options);
  Tensor build(Builder& b, Tensor x) const;

 private:
  ops::PoolOptions options_;
};

/// Options of AvgPool2d. The lists are as in ConvOptions.
struct AvgPoolOptions {
  std::vector<int64_t> kernel = {};   ///< Sizes of a window; one number represents both axes.
  std::vector<int64_t> stride = {};   ///< Default: the kernel.
  std::vector<int64_t> padding = {};  ///< Positions around x; default 0.
  bool ceil_mode = false;             ///< Windows may reach beyond the padding at the end.
  bool count_padding = true;          ///< Count positions of the padding too, as zeros.
  int64_t divisor = 0;                ///< Divides each sum; 0: the count of positions does.
};

/// The average of each window of x (batch, channels, height, width): ops::average_pool(). Like
/// PyTorch's class, it counts the padding.
class AvgPool2d : public Module {
 public:
  /// Error{kUsage} for lists of wrong lengths and without a kernel.
  explicit AvgPool2d(AvgPoolOptions options);
  Tensor build(Builder& b, Tensor x) const;

 private:
  AvgPoolOptions options_;
};

/// Options of Upsample: a size or a scale. The lists are as in ConvOptions.
struct UpsampleOptions {
  std::vector<int64_t> size = {};  ///< Sizes of the result along the spatial axes.
  std::vector<double> scale = {};  ///< Factors of the sizes; the results are rounded down.
  /// kLinear is PyTorch's "linear", "bilinear" or "trilinear", according to the axes.
  ops::Interpolation mode = ops::Interpolation::kNearest;
  bool align_corners = false;  ///< As in ops::InterpolateOptions.
};

/// Resizes x (batch, channels, spatial…): ops::interpolate(), as PyTorch's class. Positions follow
/// from the scale, if one is given, not from the quotient of the sizes.
class Upsample : public Module {
 public:
  /// Error{kUsage} unless there is either a size or a scale, sizes are at least 1 and scales are
  /// positive and finite; also for align_corners with kNearest or kNearestExact.
  explicit Upsample(UpsampleOptions options);
  /// Error{kUsage} unless x has 1 to 3 spatial axes and the lists have one number or one for each.
  Tensor build(Builder& b, Tensor x) const;
  std::string cache_key() const;

 private:
  UpsampleOptions options_;
};

/// Normalizes groups of successive channels of each sample of x (batch, channels, spatial…):
/// ops::group_norm(). The variables `weight` (ones) and `bias` (zeros) have one element for each
/// channel.
class GroupNorm : public Module {
 public:
  explicit GroupNorm(int64_t groups, double epsilon = 1e-5) : groups_(groups), epsilon_(epsilon) {}
  Tensor build(Builder& b, Tensor x) const;
  std::string cache_key() const;

 private:
  int64_t groups_;
  double epsilon_;
};

/// Normalizes the last `axes` axes of x together: ops::layer_norm(). The variables `weight` (ones)
/// and `bias` (zeros) have the shape of these axes.
class LayerNorm : public Module {
 public:
  /// Error{kUsage} unless axes >= 1.
  explicit LayerNorm(int64_t axes = 1, double epsilon = 1e-5);
  /// Error{kUsage} if x has fewer axes.
  Tensor build(Builder& b, Tensor x) const;
  std::string cache_key() const;

 private:
  int64_t axes_;
  double epsilon_;
};

/// Divides x by the root of the mean of the squares of its last `axes` axes together:
/// ops::rms_norm(). The variable `weight` (ones) has the shape of these axes.
class RMSNorm : public Module {
 public:
  /// Error{kUsage} unless axes >= 1.
  explicit RMSNorm(int64_t axes = 1, double epsilon = 0x1p-23);
  /// Error{kUsage} if x has fewer axes.
  Tensor build(Builder& b, Tensor x) const;
  std::string cache_key() const;

 private:
  int64_t axes_;
  double epsilon_;
};

/// Merges the axes `start` to `end` (inclusive, may count from the end) into one.
class Flatten : public Module {
 public:
  explicit Flatten(int64_t start = 1, int64_t end = -1) : start_(start), end_(end) {}
  Tensor build(Builder&, Tensor x) const { return ops::flatten(x, start_, end_); }

 private:
  int64_t start_;
  int64_t end_;
};

/// Returns the seed of the module at a dotted path, derived from the seed of the model. The seed is
/// folded with each part of the path, in order. So a layer has the same seed if it is built in
/// place at "fc2" or as a graph that is called with fold_seed(seed, "fc2").
Tensor fold_seed(const Tensor& seed, std::string_view path);

/// Sets each element to zero with probability p and scales all other elements by 1 / (1 - p). In
/// evaluation (Builder::mode), or with RunMode::kEvaluate, it is the identity. The mask depends on
/// the seed, the module's path in the graph and the element's index. A graph that is called several
/// times needs a different seed for each call: fold_seed(seed, "fc2").
class Dropout : public Module {
 public:
  /// Error{kUsage} unless 0 <= p < 1.
  explicit Dropout(double p, RunMode mode = RunMode::kTrain);
  /// Reads the seed of the builder (Builder::seed).
  Tensor build(Builder& b, Tensor x) const;
  /// `seed` is a uint32[2] tensor. In evaluation it is not used.
  Tensor build(Builder& b, Tensor x, Tensor seed) const;
  std::string cache_key() const;

 private:
  bool draws(const Builder& b) const;

  double p_;
  RunMode mode_;
};

struct BatchNormOptions {
  double epsilon = 1e-5;  ///< Added to the variance.
  double momentum = 0.1;  ///< Part of a micro-batch's statistics in the running ones.
};

/// Normalizes each channel of x (batch, channels, spatial…) and multiplies it by `weight` (ones)
/// and adds `bias` (zeros), like PyTorch's layer. Training takes mean and variance from the
/// micro-batch (ops::batch_norm) and updates the running variables `running_mean` (zeros) and
/// `running_var` (ones): running = (1 - momentum)·running + momentum·statistic. The statistic of
/// the variance is the unbiased one. Evaluation (Builder::mode) reads the running variables. All
/// variables have the shape (channels) and x's dtype. Error{kUsage} if x has fewer than two axes.
/// In training, Error{kUsage} if a channel has only one value.
class BatchNorm : public Module {
 public:
  /// Error{kUsage} unless 0 <= momentum <= 1.
  explicit BatchNorm(const BatchNormOptions& options = {});
  Tensor build(Builder& b, Tensor x) const;
  std::string cache_key() const;

 private:
  BatchNormOptions options_;
};

/// BatchNorm of images (batch, channels, height, width). Error{kUsage} for other axes.
class BatchNorm2d : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;
  Tensor build(Builder& b, Tensor x) const;
};

/// How Gelu computes x·Φ(x) with the distribution function Φ of standard normal numbers.
enum class Approximation {
  kNone,  ///< The error function computes Φ: PyTorch's default.
  kTanh,  ///< A hyperbolic tangent approximates Φ: PyTorch's approximate="tanh".
};

/// Activations as modules, for Sequential. Each equals PyTorch's class of the same name.
class Gelu : public Module {
 public:
  explicit Gelu(Approximation approximation = Approximation::kNone)
      : approximation_(approximation) {}
  Tensor build(Builder&, Tensor x) const {
    return approximation_ == Approximation::kTanh ? ops::gelu(x) : ops::gelu_erf(x);
  }
  std::string cache_key() const { return approximation_ == Approximation::kTanh ? "tanh" : ""; }

 private:
  Approximation approximation_;
};
struct Relu : Module {
  Tensor build(Builder&, Tensor x) const { return ops::relu(x); }
};
struct Silu : Module {
  Tensor build(Builder&, Tensor x) const { return ops::swish(x); }
};
struct Tanh : Module {
  Tensor build(Builder&, Tensor x) const { return ops::tanh(x); }
};
struct Sigmoid : Module {
  Tensor build(Builder&, Tensor x) const { return ops::sigmoid(x); }
};
struct Softplus : Module {
  Tensor build(Builder&, Tensor x) const { return ops::softplus(x); }
};
struct HardSigmoid : Module {
  Tensor build(Builder&, Tensor x) const { return ops::hard_sigmoid(x); }
};
struct HardSwish : Module {
  Tensor build(Builder&, Tensor x) const { return ops::hard_swish(x); }
};
struct Mish : Module {
  Tensor build(Builder&, Tensor x) const { return ops::mish(x); }
};
class LeakyRelu : public Module {
 public:
  explicit LeakyRelu(double slope = 0.01) : slope_(slope) {}
  Tensor build(Builder&, Tensor x) const { return ops::leaky_relu(x, slope_); }
  std::string cache_key() const;

 private:
  double slope_;
};
class Elu : public Module {
 public:
  explicit Elu(double alpha = 1) : alpha_(alpha) {}
  Tensor build(Builder&, Tensor x) const { return ops::elu(x, alpha_); }
  std::string cache_key() const;

 private:
  double alpha_;
};
class Softmax : public Module {
 public:
  explicit Softmax(int64_t axis = -1) : axis_(axis) {}
  Tensor build(Builder&, Tensor x) const { return ops::softmax(x, axis_); }
  std::string cache_key() const { return std::to_string(axis_); }

 private:
  int64_t axis_;
};
class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(int64_t axis = -1) : axis_(axis) {}
  Tensor build(Builder&, Tensor x) const { return ops::log_softmax(x, axis_); }
  std::string cache_key() const { return std::to_string(axis_); }

 private:
  int64_t axis_;
};

struct CrossEntropyOptions {
  /// Factor of the losses of each class; empty: 1. The mean is divided by the sum of the factors.
  std::vector<double> class_weights = {};
  double label_smoothing = 0;   ///< Part of each label that all classes share, in [0, 1].
  int64_t ignore_index = -100;  ///< Label of samples that do not count.
  ops::LossReduction reduction = ops::LossReduction::kMean;
};

/// Softmax cross entropy like PyTorch's class. The classes of `logits` are axis 1: (batch, classes)
/// or (batch, classes, d1, …), or (classes) of one sample. `labels` are int32 or uint32 without the
/// axis of classes, or the probabilities of all classes, with the shape and dtype of `logits`.
/// Samples with probabilities are never ignored. The mean is 0 if all samples are ignored. A label
/// that is not a class makes its loss NaN.
class CrossEntropyLoss : public Module {
 public:
  /// Error{kUsage} unless label_smoothing is in [0, 1].
  explicit CrossEntropyLoss(CrossEntropyOptions options = {});
  /// Error{kUsage} if class_weights has another number of classes, or shapes do not match.
  Tensor build(Builder& b, Tensor logits, Tensor labels) const;

  /// A loss as a sum.
  struct Sum {
    Tensor loss;    ///< Sum of the samples' weighted losses, in the dtype of the logits.
    Tensor weight;  ///< Sum of the samples' weights, float32: the divisor of the mean.
    /// {tensor, factor · gradient of `loss` by it}, if one op computes both; else empty.
    std::vector<std::pair<Tensor, Tensor>> gradients = {};
  };
  /// Returns the mean's dividend and divisor; `factor` scales the gradients. The option `reduction`
  /// has no effect. Error{kUsage} as build().
  Sum sum(Tensor logits, Tensor labels, double factor = 1) const;

 private:
  CrossEntropyOptions options_;
};

/// Mean or sum of (prediction - target)² over all elements; with kNone, the value of each element.
class SquaredError : public Module {
 public:
  explicit SquaredError(ops::LossReduction reduction = ops::LossReduction::kMean)
      : reduction_(reduction) {}
  Tensor build(Builder& b, Tensor prediction, Tensor target) const;

 private:
  ops::LossReduction reduction_;
};

/// Runs modules one after another. Their keys are "0", "1", …: `nn::Sequential(Linear(512), Gelu(),
/// Linear(10))`.
template <typename... Ms>
class Sequential : public Module {
 public:
  explicit Sequential(Ms... modules)
      : Sequential(std::index_sequence_for<Ms...>(), std::move(modules)...) {}

  Tensor build(Builder& b, Tensor x) const {
    std::apply([&](const auto&... child) { ((x = child(b, x)), ...); }, children_);
    return x;
  }

 private:
  template <size_t... I>
  Sequential(std::index_sequence<I...>, Ms... modules)
      : children_{Child<Ms>(*this, std::to_string(I), std::move(modules))...} {}

  std::tuple<Child<Ms>...> children_;
};

}  // namespace sluice::nn
