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
  require(x.rank() >= axes_, "LayerNorm: x must have at least {} axes, got '{}' {}", axes_,
          x.name(), to_string(x.spec()));
  const Shape& all = x.shape();
  const Shape last(std::vector<int64_t>(all.end() - axes_, all.end()));
  const Affine a(b, last, x.dtype());
  if (axes_ == 1) return ops::layer_norm(x, a.weight, a.bias, {.epsilon = epsilon_});
  std::vector<int64_t> rows(all.begin(), all.end() - axes_);
  rows.push_back(last.elements());
  const Tensor y = ops::layer_norm(ops::reshape(x, Shape(rows)), ops::flatten(a.weight),
                                   ops::flatten(a.bias), {.epsilon = epsilon_});
  return ops::reshape(y, all);
}

std::string LayerNorm::cache_key() const { return fmt::format("{} {}", axes_, epsilon_); }

}  // namespace sluice::nn
