#pragma once
#include "sluice/sluice.h"
#include "tools/options.h"

namespace sluice::tool {

/// A multilayer perceptron on digits: `layers` linear layers of `width` features with GELU between, the last one of 10.
class Mlp : public nn::Module {
 public:
  Mlp(int64_t layers, int64_t width, double dropout);
  /// (batch, 28, 28) to logits (batch, 10). `seed` (uint32[2]) is one tensor in training with dropout, else empty.
  Tensor build(nn::Builder& b, Tensor image, const Tensors& seed) const;

 private:
  nn::Children<nn::Linear> fc_{*this, "fc"};
  double dropout_;
};

/// The programs of model `mnist`: "train" does one step of `micro_batch` samples, "eval" computes logits of
/// `eval_batch` samples. They share the weights.
struct MnistPrograms {
  Ir ir;
  H2dStream image;
  H2dStream labels;
  H2dStream seed;  ///< Of dropout; used if there is any.
  D2hStream loss;
  H2dStream eval_image;
  D2hStream eval_logits;
  nn::NamedTensors variables;  ///< Weights, in "train".
  nn::NamedTensors state;      ///< Of the optimizer.
};

/// Error{kUsage} for layers, width, rates or names that make no model.
MnistPrograms build_mnist(const ToolOptions& options);

/// How the command line wants them to run.
SessionOptions session_options(const ToolOptions& options);

}  // namespace sluice::tool
