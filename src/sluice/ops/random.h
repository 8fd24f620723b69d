#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

/// Random numbers are pure functions of a seed tensor and of the index of the element in the full
/// tensor. The same seed produces the same numbers. A seed is uint32 of shape (2,) and holds {hi,
/// lo} of the Seed of base/rng.h. Make a new seed for each use.

struct DropoutOptions {
  double p = 0.5;
  int64_t offset = 0;
  static auto fields(auto&& use) {
    return use(
        field("p", &DropoutOptions::p, "Probability that an element becomes zero, in [0, 1)."),
        field("offset", &DropoutOptions::offset,
              "Index of element 0 in the full tensor; x may be a chunk of it."));
  }
};

struct RandomUniformOptions {
  Shape shape = {};
  DType dtype = f32;
  double low = 0;
  double high = 1;
  int64_t offset = 0;
  static auto fields(auto&& use) {
    return use(
        required_field("shape", &RandomUniformOptions::shape, "Shape of the result."),
        field("dtype", &RandomUniformOptions::dtype, "Dtype of the result, floating point."),
        field("low", &RandomUniformOptions::low, "Lower bound."),
        field("high", &RandomUniformOptions::high, "Upper bound."),
        field("offset", &RandomUniformOptions::offset, "Index of element 0 in the full tensor."));
  }
};

struct RandomNormalOptions {
  Shape shape = {};
  DType dtype = f32;
  double mean = 0;
  double std = 1;
  int64_t offset = 0;
  static auto fields(auto&& use) {
    return use(
        required_field("shape", &RandomNormalOptions::shape, "Shape of the result."),
        field("dtype", &RandomNormalOptions::dtype, "Dtype of the result, floating point."),
        field("mean", &RandomNormalOptions::mean, "Mean."),
        field("std", &RandomNormalOptions::std, "Standard deviation, not negative."),
        field("offset", &RandomNormalOptions::offset, "Index of element 0 in the full tensor."));
  }
};

struct FoldSeedOptions {
  int64_t data = 0;
  static auto fields(auto&& use) {
    return use(field("data", &FoldSeedOptions::data,
                     "Word to fold into the seed, unless an operand holds the word."));
  }
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
