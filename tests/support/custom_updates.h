#pragma once
#include <string>

#include "sluice/nn/update/optimizers.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/unary.h"
#include "sluice/ops/updates.h"

/// Updates of a program (nn::Optimizer::custom) that tests share.
namespace sluice::test {

/// The update is the sign of an averaged gradient (Lion: Chen et al., 2023).
struct Lion : nn::Module {
  void build(nn::Builder& b, Tensor variable, Tensor grad, Tensor step_size) const {
    const Tensor mean = nn::add_state(b, "mean", variable);
    const Tensor g = ops::cast(grad, f32);
    ops::scaled_add_(variable, ops::sign(mean * 0.9 + g * 0.1), 1.0, step_size);
    ops::accumulate_moving_average_(mean, g, 0.99);
  }
  std::string cache_key() const { return ""; }
};

/// The gradient is divided by its norm, which replicas compute from their shards.
struct NormalizedSgd : nn::Module {
  void build(nn::Builder& b, Tensor variable, Tensor grad, Tensor step_size,
             const ops::Group& group) const {
    const Tensor mean = nn::add_state(b, "mean", variable);
    const Tensor g = ops::cast(grad, f32) * ops::rsqrt(nn::squared_norm(grad, group) + 1e-6);
    ops::scaled_add_(variable, ops::accumulate_moving_average_(mean, g, 0.5), 1.0, step_size);
  }
  std::string cache_key() const { return ""; }
};

}  // namespace sluice::test
