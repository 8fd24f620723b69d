#include "sluice/models/perceptron.h"

#include "sluice/nn/layers.h"
#include "sluice/ops/ops.h"

namespace sluice::models {
namespace {

// A linear layer. The activation and dropout follow unless it is the last layer.
class Layer : public nn::Module {
 public:
  Layer(int64_t features, Activation activation, bool last, double dropout)
      : features_(features), activation_(activation), last_(last), dropout_(dropout) {}

  Tensor build(nn::Builder& b, Tensor x, const Tensors& seed) const {
    if (x.rank() > 2) x = ops::reshape(x, {x.dim(0), -1});
    const bool relu = activation_ == Activation::kRelu;
    const auto init = relu ? nn::WeightInit::kHe : nn::WeightInit::kNormal;
    x = nn::Linear(features_, nn::Bias::kAdd, init).build(b, x);
    if (last_) return x;
    x = relu ? ops::relu(x) : ops::gelu(x);
    return seed.empty() ? x : b.inlined("dropout", nn::Dropout(dropout_), x, seed[0]);
  }

 private:
  int64_t features_;
  Activation activation_;
  bool last_;
  double dropout_;
};

class Perceptron : public nn::Module {
 public:
  Perceptron(const Sizes& s, Activation activation) {
    for (int64_t i = 0; i < s.layers; ++i) {
      const bool last = i + 1 == s.layers;
      layers_.add(last ? s.classes : s.width, activation, last, s.dropout);
    }
  }
  Tensor build(nn::Builder& b, Tensor x, const Tensors& seed) const {
    for (const auto& layer : layers_) x = layer(b, x, seed);
    return x;
  }

 private:
  nn::Children<Layer> layers_{*this, "fc"};
};

}  // namespace

train::Network perceptron(const Sizes& s, Activation activation) {
  const auto batch = [&](int64_t samples) {
    std::vector<int64_t> dims{samples};
    dims.insert(dims.end(), s.sample.begin(), s.sample.end());
    return TensorSpec{Shape(std::move(dims)), f32, {}};
  };
  return train::classifier(Perceptron(s, activation), batch(s.micro_batch),
                           {.eval_input = batch(s.eval_batch)});
}

}  // namespace sluice::models
