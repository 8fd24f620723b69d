#include "sluice/nn/layers.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/normalization.h"

namespace sluice::nn {

BatchNorm::BatchNorm(const BatchNormOptions& options) : options_(options) {
  require(options.momentum >= 0 && options.momentum <= 1,
          "BatchNorm: momentum must be in [0, 1], got {}", options.momentum);
}

Tensor BatchNorm::build(Builder& b, Tensor x) const {
  require(x.rank() >= 2, "BatchNorm: x must have axes (batch, channels, spatial…), got '{}' {}",
          x.name(), to_string(x.spec()));
  const Shape channels{x.dim(1)};
  const Tensor weight = b.add_variable_input("weight", ones(), channels, x.dtype());
  const Tensor bias = b.add_variable_input("bias", zeros(), channels, x.dtype());
  const Tensor mean = b.add_running_input("running_mean", zeros(), channels, x.dtype());
  const Tensor variance = b.add_running_input("running_var", ones(), channels, x.dtype());
  if (b.mode() == RunMode::kEvaluate) {
    return ops::batch_norm_inference(x, weight, bias, mean, variance,
                                     {.epsilon = options_.epsilon});
  }
  const Tensors made = ops::batch_norm(x, weight, bias, {.epsilon = options_.epsilon});
  const RunningRule rule{.keep = 1 - options_.momentum, .take = options_.momentum};
  b.update_running(mean, made[1], rule);
  const int64_t values = x.dim(1) == 0 ? 0 : x.elements() / x.dim(1);
  const double unbiased = values < 2 ? 1 : static_cast<double>(values) / (values - 1.0);
  b.update_running(variance, made[2] * unbiased, rule);
  return made[0];
}

std::string BatchNorm::cache_key() const {
  return fmt::format("{} {}", options_.epsilon, options_.momentum);
}

Tensor BatchNorm2d::build(Builder& b, Tensor x) const {
  require(x.rank() == 4,
          "BatchNorm2d: x must have axes (batch, channels, height, width), got '{}' {}", x.name(),
          to_string(x.spec()));
  return BatchNorm::build(b, x);
}

}  // namespace sluice::nn
