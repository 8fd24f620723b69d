#include "sluice/nn/layers.h"

#include <algorithm>
#include <cmath>

#include "sluice/nn/dot_tree.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/random.h"

namespace sluice::nn {
namespace {

Initializer weight_init(WeightInit init, int64_t in) {
  constexpr double kDeviation = 0.02;
  switch (init) {
    case WeightInit::kTruncatedNormal:
      return truncated_normal(0, kDeviation);
    case WeightInit::kNormal:
      return normal(0, kDeviation);
    case WeightInit::kHe:
      return normal(0, std::sqrt(2.0 / static_cast<double>(std::max<int64_t>(in, 1))));
  }
  fail(ErrorKind::kInternal, "Linear: unknown weight init {}", static_cast<int>(init));
}

}  // namespace

Linear::Linear(int64_t out_features, Bias bias, WeightInit init)
    : out_features_(out_features), bias_(bias), init_(init) {
  require(out_features >= 1, "Linear: out_features must be at least 1, got {}", out_features);
}

Tensor Linear::build(Builder& b, Tensor x) const {
  require(x.rank() >= 1, "Linear: input must have at least one dimension, got '{}' {}", x.name(),
          to_string(x.spec()));
  const int64_t in = x.dim(-1);
  const Tensor w =
      b.add_variable_input("weight", weight_init(init_, in), {in, out_features_}, x.dtype());
  const Tensor y = ops::matmul(x, w);
  if (bias_ == Bias::kNone) return y;
  return y + b.add_variable_input("bias", zeros(), {out_features_}, x.dtype());
}

std::string Linear::cache_key() const {
  return fmt::format("{} {} {}", out_features_, static_cast<int>(bias_), static_cast<int>(init_));
}

Tensor fold_seed(const Tensor& seed, std::string_view path) {
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

Tensor Dropout::build(Builder& b, Tensor x, Tensor seed) const {
  if (mode_ == RunMode::kEvaluate || p_ == 0) return x;
  return ops::dropout(x, fold_seed(seed, b.path()), p_);
}

std::string Dropout::cache_key() const { return fmt::format("{} {}", p_, static_cast<int>(mode_)); }

}  // namespace sluice::nn
