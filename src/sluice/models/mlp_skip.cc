#include <algorithm>
#include <cmath>

#include "sluice/base/error.h"
#include "sluice/data/mnist.h"
#include "sluice/models/model.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/ops.h"

namespace sluice::models {
namespace {

constexpr double kAsideWeight = 0.3;

// A linear layer with ReLU and dropout.
class Hidden : public nn::Module {
 public:
  Hidden(int64_t width, double dropout) : width_(width), dropout_(dropout) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    if (x.rank() > 2) x = ops::reshape(x, {x.dim(0), -1});
    x = ops::relu(nn::Linear(width_, nn::Bias::kAdd, nn::WeightInit::kHe).build(b, x));
    return b.inlined("dropout", nn::Dropout(dropout_), x);
  }

 private:
  int64_t width_;
  double dropout_;
};

// Adds `scale` times a hidden layer of x to x.
class ScaledResidual : public nn::Module {
 public:
  ScaledResidual(const Hidden& hidden, double scale) : hidden_(hidden), scale_(scale) {}
  Tensor build(nn::Builder& b, Tensor x) const { return x + hidden_.build(b, x) * scale_; }

 private:
  Hidden hidden_;
  double scale_;
};

// Scores of the classes by a weight that other modules use, too.
struct Head : nn::Module {
  Tensor build(nn::Builder& b, Tensor x, Tensor weight) const {
    return ops::matmul(x, weight) +
           b.add_variable_input("bias", nn::zeros(), {data::kMnistClasses}, f32);
  }
};

// The last head, which reads the mean of x and of the first layer's result.
struct SkipHead : nn::Module {
  Tensor build(nn::Builder& b, Tensor x, Tensor first, Tensor weight) const {
    return Head().build(b, (x + first) * 0.5, weight);
  }
};

// A hidden layer, equal residual layers and two heads. The head in the middle has a loss of its
// own, so that the layers below it learn from a short way. The heads share their weight.
class SkipPerceptron : public nn::Module {
 public:
  explicit SkipPerceptron(const Sizes& s)
      : width_(s.width), first_(*this, "in", s.width, s.dropout) {
    const int64_t residuals = s.layers - 2;
    // The sum of all residuals has about the variance of one hidden layer.
    const double scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(residuals, 1)));
    for (int64_t i = 0; i < residuals; ++i) residuals_.add(Hidden(s.width, s.dropout), scale);
  }

  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    const double deviation = 1 / std::sqrt(static_cast<double>(width_));
    const Tensor classes = b.add_variable_input("classes", nn::normal(0, deviation),
                                                {width_, data::kMnistClasses}, f32);
    const Tensor first = first_(b, in["input"]);
    train::Results results;
    Tensor x = first;
    for (size_t i = 0; i <= residuals_.size(); ++i) {
      if (in.wants_losses() && i == (residuals_.size() + 1) / 2) {
        const Tensor scores = aside_(b, x, classes);
        results.losses.push_back({.name = "aside",
                                  .value = ops::cross_entropy(scores, in["labels"]),
                                  .weight = kAsideWeight});
      }
      if (i < residuals_.size()) x = residuals_[i](b, x);
    }
    const Tensor logits = last_(b, x, first, classes);
    if (in.wants_losses())
      results.losses.insert(results.losses.begin(), train::cross_entropy(logits, in["labels"]));
    results.predictions = {{"logits", logits, "labels"}};
    return results;
  }

 private:
  int64_t width_;
  nn::Child<Hidden> first_;
  nn::Children<ScaledResidual> residuals_{*this, "res"};
  nn::Child<Head> aside_{*this, "aside"};
  nn::Child<SkipHead> last_{*this, "out"};
};

train::Network build(const Sizes& s) {
  require(s.layers >= 2, "mlp-skip: layers must be at least 2, the first and the last, got {}",
          s.layers);
  const TensorSpec images{{s.micro_batch, data::kMnistSide, data::kMnistSide}, f32, {}};
  return train::Network(
      SkipPerceptron(s),
      train::internal::classifier_fields(
          images,
          {.eval_input = TensorSpec{{s.eval_batch, data::kMnistSide, data::kMnistSide}, f32, {}}}));
}

}  // namespace

Model mlp_skip_model() {
  return {
      .name = "mlp-skip",
      .doc = "a residual perceptron with two losses whose heads share a weight",
      .data = &kDigits,
      .test_sizes = {.micro_batch = 2, .eval_batch = 4, .layers = 7, .width = 16, .dropout = 0.25},
      .build = build};
}

}  // namespace sluice::models
