#pragma once
#include <cstdint>
#include <tuple>
#include <utility>

#include "sluice/nn/module.h"
#include "sluice/ops/activations.h"

namespace sluice::nn {

enum class Bias { kNone, kAdd };

/// Deviation of a linear layer's first weights.
enum class WeightInit {
  kSmall,  ///< 0.02, cut off at two deviations.
  kHe,     ///< √(2 / in), normal: keeps the variance through ReLU at any depth (He et al., 2015).
};

/// x @ weight + bias over the last axis. Variables in x's dtype: `weight` (in, out), normal as
/// `init` says; `bias` (out), zeros.
class Linear : public Module {
 public:
  /// Error{kUsage} unless out_features >= 1.
  explicit Linear(int64_t out_features, Bias bias = Bias::kAdd,
                  WeightInit init = WeightInit::kSmall);
  /// (…, in) to (…, out); Error{kUsage} for a scalar.
  Tensor build(Builder& b, Tensor x) const;
  std::string cache_key() const;

 private:
  int64_t out_features_;
  Bias bias_;
  WeightInit init_;
};

/// Whether a model is built to be trained or to be used.
enum class RunMode { kTrain, kEvaluate };

/// The seed of what stands at a dotted path of a model, from the model's: folded with each part of
/// the path in turn, so that a layer has the same seed built in place at "fc2" or as a graph that
/// is given fold_seed(seed, "fc2").
Tensor fold_seed(const Tensor& seed, std::string_view path);

/// Zeros each element with probability p and scales the others by 1 / (1 - p); the identity when
/// evaluating. The mask is a function of the seed, the module's path in the graph and the element's
/// index. A graph that is called several times needs a seed of its own each time: fold_seed(seed,
/// "fc2").
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

/// Modules one after another, with keys "0", "1", …: `nn::Sequential(Linear(512), Gelu(),
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
