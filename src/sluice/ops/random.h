#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

/// Random numbers are pure functions of a seed tensor and of the index of the element in the full
/// tensor. The same seed produces the same numbers. A seed is uint32 of shape (2,) and holds {hi,
/// lo} of the Seed of base/rng.h. Make a new seed for each use.

struct DropoutOptions {
  double p = 0.5;      ///< Probability that an element becomes zero, in [0, 1).
  int64_t offset = 0;  ///< Index of element 0 in the full tensor; x may be a chunk of it.
  static auto fields(auto&& use) {
    return use(field("p", &DropoutOptions::p), field("offset", &DropoutOptions::offset));
  }
};

struct RandomUniformOptions {
  Shape shape = {};    ///< Shape of the result.
  DType dtype = f32;   ///< Dtype of the result, floating point.
  double low = 0;      ///< Lower bound.
  double high = 1;     ///< Upper bound.
  int64_t offset = 0;  ///< Index of element 0 in the full tensor.
  static auto fields(auto&& use) {
    return use(field("shape", &RandomUniformOptions::shape),
               field("dtype", &RandomUniformOptions::dtype),
               field("low", &RandomUniformOptions::low), field("high", &RandomUniformOptions::high),
               field("offset", &RandomUniformOptions::offset));
  }
};

struct RandomNormalOptions {
  Shape shape = {};    ///< Shape of the result.
  DType dtype = f32;   ///< Dtype of the result, floating point.
  double mean = 0;     ///< Mean.
  double std = 1;      ///< Standard deviation, not negative.
  int64_t offset = 0;  ///< Index of element 0 in the full tensor.
  static auto fields(auto&& use) {
    return use(field("shape", &RandomNormalOptions::shape),
               field("dtype", &RandomNormalOptions::dtype),
               field("mean", &RandomNormalOptions::mean), field("std", &RandomNormalOptions::std),
               field("offset", &RandomNormalOptions::offset));
  }
};

struct FoldSeedOptions {
  int64_t data = 0;  ///< Word to fold into the seed, unless an operand holds the word.
  static auto fields(auto&& use) { return use(field("data", &FoldSeedOptions::data)); }
};

const OpDef& dropout_def();
const OpDef& random_uniform_def();
const OpDef& random_normal_def();
const OpDef& fold_seed_def();

/// Parameters of dropout kernels, which define its bits. Element i is kept, and multiplied by
/// `scale`, if random_bits(seed, offset + i) >> 8 >= threshold.
struct DropoutParams {
  explicit DropoutParams(const DropoutOptions& options);
  uint32_t threshold;  ///< p·2²⁴, rounded up.
  float scale;         ///< 1 / (1 − p).
};

/// Zeroes elements with probability p and scales the kept ones by 1/(1 − p). The gradient
/// recomputes the mask from the seed, so only the seed is kept.
Tensor dropout(TensorArg x, TensorArg seed, double p);
/// Returns uniform random numbers in [low, high); rounding may give high.
Tensor random_uniform(TensorArg seed, const Shape& shape, double low = 0, double high = 1,
                      DType dtype = f32);
/// Returns normal random numbers (Box-Muller).
Tensor random_normal(TensorArg seed, const Shape& shape, double mean = 0, double std = 1,
                     DType dtype = f32);

/// Makes a new seed from a seed and a word. The word is an integer scalar tensor (a step, a
/// replica), a constant, or a path.
Tensor fold_seed(TensorArg seed, TensorArg data);
Tensor fold_seed(TensorArg seed, int64_t data);
Tensor fold_seed(TensorArg seed, std::string_view path);
/// Makes n seeds that differ from each other and from the seeds that other functions make.
/// Error{kUsage} unless n > 0.
Tensors split_random_seed(TensorArg seed, int n = 2);

}  // namespace sluice::ops
