#include "sluice/nn/layers/common.h"
#include "sluice/ops/normalization.h"

namespace sluice::nn {
namespace {

// The variables of a norm: a factor and a summand for each normalized element.
struct Affine {
  Affine(Builder& b, const Shape& shape, DType dtype)
      : weight(b.add_variable_input("weight", ones(), shape, dtype)),
        bias(b.add_variable_input("bias", zeros(), shape, dtype)) {}
  Tensor weight;
  Tensor bias;
};

// Returns the shape of the last axes of x, which a norm normalizes together.
Shape last_axes(std::string_view layer, const Tensor& x, int64_t axes) {
  require(x.rank() >= axes, "{}: x must have at least {} axes, got '{}' {}", layer, axes, x.name(),
          to_string(x.spec()));
  return Shape(std::vector<int64_t>(x.shape().end() - axes, x.shape().end()));
}

}  // namespace

Tensor GroupNorm::build(Builder& b, Tensor x) const {
  require(x.rank() >= 2, "GroupNorm: x must have a batch and channels, got '{}' {}", x.name(),
          to_string(x.spec()));
  const Affine a(b, {x.dim(1)}, x.dtype());
  return ops::group_norm(x, a.weight, a.bias, {.groups = groups_, .epsilon = epsilon_});
}

std::string GroupNorm::cache_key() const { return fmt::format("{} {}", groups_, epsilon_); }

LayerNorm::LayerNorm(int64_t axes, double epsilon) : axes_(axes), epsilon_(epsilon) {
  require(axes >= 1, "LayerNorm: axes must be at least 1, got {}", axes);
}

Tensor LayerNorm::build(Builder& b, Tensor x) const {
  const Affine a(b, last_axes("LayerNorm", x, axes_), x.dtype());
  if (axes_ == 1) return ops::layer_norm(x, a.weight, a.bias, {.epsilon = epsilon_});
  const Tensor y = ops::layer_norm(ops::flatten(x, -axes_), ops::flatten(a.weight),
                                   ops::flatten(a.bias), {.epsilon = epsilon_});
  return ops::reshape(y, x.shape());
}

std::string LayerNorm::cache_key() const { return fmt::format("{} {}", axes_, epsilon_); }

RMSNorm::RMSNorm(int64_t axes, double epsilon) : axes_(axes), epsilon_(epsilon) {
  require(axes >= 1, "RMSNorm: axes must be at least 1, got {}", axes);
}

Tensor RMSNorm::build(Builder& b, Tensor x) const {
  const Tensor weight =
      b.add_variable_input("weight", ones(), last_axes("RMSNorm", x, axes_), x.dtype());
  if (axes_ == 1) return ops::rms_norm(x, weight, {.epsilon = epsilon_});
  const Tensor y =
      ops::rms_norm(ops::flatten(x, -axes_), ops::flatten(weight), {.epsilon = epsilon_});
  return ops::reshape(y, x.shape());
}

std::string RMSNorm::cache_key() const { return fmt::format("{} {}", axes_, epsilon_); }

}  // namespace sluice::nn
