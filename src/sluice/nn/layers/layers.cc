#include "sluice/nn/layers.h"

#include "sluice/base/provenance.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/nn/dot_tree.h"
#include "sluice/nn/layers/common.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/random.h"

namespace sluice::nn {
namespace {

// PyTorch stores the weight as (out, in).
constexpr TorchName kLinearWeight{.variable = "weight", .name = "weight", .transposed = true};

}  // namespace

Linear::Linear(int64_t out_features, Bias bias, WeightInit init)
    : out_features_(out_features), bias_(bias), init_(init) {
  require(out_features >= 1, "Linear: out_features must be at least 1, got {}", out_features);
}

Tensor Linear::build(Builder& b, Tensor x) const {
  require(x.rank() >= 1, "Linear: input must have at least one dimension, got '{}' {}", x.name(),
          to_string(x.spec()));
  const int64_t in = x.dim(-1);
  const Shape shape{in, out_features_};
  VariableFactory weight({shape, x.dtype(), {}},
                         internal::weight_init(init_, shape, {.in = in, .out = out_features_}));
  weight.set_torch(kLinearWeight);
  const Tensor y =
      ops::matmul(x, b.add_variable_input(std::string(kLinearWeight.variable), weight));
  if (bias_ == Bias::kNone) return y;
  return y +
         b.add_variable_input("bias", internal::bias_init(init_, in), {out_features_}, x.dtype());
}

std::string Linear::cache_key() const {
  return fmt::format("{} {} {}", out_features_, static_cast<int>(bias_), static_cast<int>(init_));
}

SwiGLU::SwiGLU(int64_t hidden, Bias bias, WeightInit init)
    : hidden_(hidden), bias_(bias), init_(init) {
  require(hidden >= 1, "SwiGLU: hidden must be at least 1, got {}", hidden);
}

Tensor SwiGLU::build(Builder& b, Tensor x) const {
  require(x.rank() >= 1, "SwiGLU: x must have at least one axis, got '{}' {}", x.name(),
          to_string(x.spec()));
  const Linear wide(hidden_, bias_, init_);
  const Tensor gate = ops::swish(b.inlined("gate_proj", wide, x));
  return b.inlined("down_proj", Linear(x.dim(-1), bias_, init_),
                   gate * b.inlined("up_proj", wide, x));
}

std::string SwiGLU::cache_key() const {
  return fmt::format("{} {} {}", hidden_, static_cast<int>(bias_), static_cast<int>(init_));
}

std::string LeakyRelu::cache_key() const { return fmt::format("{}", slope_); }

std::string Elu::cache_key() const { return fmt::format("{}", alpha_); }

Tensor fold_seed(const Tensor& seed, std::string_view path) {
  const Graph::ProvenanceScope role(seed.graph(), {.role = OpRole::kSeed});
  Tensor result = seed;
  while (!path.empty()) {
    const auto [head, rest] = internal::split_key(path);
    result = ops::fold_seed(result, head);
    path = rest;
  }
  return result;
}

Dropout::Dropout(double p, RunMode mode) : p_(p), mode_(mode) {
  require(p >= 0 && p < 1, "Dropout: p must be in [0, 1), got {}", p);
}

bool Dropout::draws(const Builder& b) const {
  return mode_ == RunMode::kTrain && b.mode() == RunMode::kTrain && p_ > 0;
}

Tensor Dropout::build(Builder& b, Tensor x) const { return draws(b) ? build(b, x, b.seed()) : x; }

Tensor Dropout::build(Builder& b, Tensor x, Tensor seed) const {
  return draws(b) ? ops::dropout(x, fold_seed(seed, b.path()), p_) : x;
}

std::string Dropout::cache_key() const { return fmt::format("{} {}", p_, static_cast<int>(mode_)); }

}  // namespace sluice::nn
