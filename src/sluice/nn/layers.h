#pragma once
#include <cstdint>
#include <tuple>
#include <utility>

#include "sluice/nn/module.h"
#include "sluice/ops/activations.h"

namespace sluice::nn {

enum class Bias { kNone, kAdd };

/// Distribution of a linear layer's first weights.
enum class WeightInit {
  /// Normal with standard deviation 0.02, truncated at two standard deviations.
  kTruncatedNormal,
  /// Normal with standard deviation 0.02.
  kNormal,
  /// Normal with standard deviation √(2 / in). It keeps the variance through ReLU at any depth (He
  /// et al., 2015).
  kHe,
};

/// Computes x @ weight + bias over the last axis. The variables have x's dtype: `weight` (in, out),
/// initialized as `init` says, and `bias` (out), initialized with zeros.
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

/// Returns the seed of the module at a dotted path, derived from the seed of the model. The seed is
/// folded with each part of the path in turn. So a layer has the same seed if it is built in place
/// at "fc2" or as a graph that is called with fold_seed(seed, "fc2").
Tensor fold_seed(const Tensor& seed, std::string_view path);

/// Sets each element to zero with probability p and scales all other elements by 1 / (1 - p). With
/// RunMode::kEvaluate it is the identity. The mask depends on the seed, the module's path in the
/// graph and the element's index. A graph that is called several times needs a different seed for
/// each call: fold_seed(seed, "fc2").
class Dropout : public Module {
 public:
  /// Error{kUsage} unless 0 <= p < 1.
  explicit Dropout(double p, RunMode mode = RunMode::kTrain);
  /// `seed` is a uint32[2] tensor.
  Tensor build(Builder& b, Tensor x, Tensor seed) const;
  std::string cache_key() const;

 private:
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
/// variables have the shape (channels) and x's dtype. Error{kUsage} if x has fewer than two axes,
/// and in training for one value in a channel.
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

/// Activations as modules, for Sequential.
struct Relu : Module {
  Tensor build(Builder&, Tensor x) const { return ops::relu(x); }
};
struct Gelu : Module {
  Tensor build(Builder&, Tensor x) const { return ops::gelu(x); }
};
struct Tanh : Module {
  Tensor build(Builder&, Tensor x) const { return ops::tanh(x); }
};
struct Sigmoid : Module {
  Tensor build(Builder&, Tensor x) const { return ops::sigmoid(x); }
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
