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

/// Whether a model is built for training or for evaluation.
enum class RunMode { kTrain, kEvaluate };

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
