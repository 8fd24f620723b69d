#include "sluice/models/perceptron.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "sluice/base/error.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/ops.h"

namespace sluice::models {
namespace {

// A linear layer. The activation and dropout follow unless it is the last layer.
class Layer : public nn::Module {
 public:
  Layer(int64_t features, Activation activation, bool last, double dropout)
      : features_(features), activation_(activation), last_(last), dropout_(dropout) {}

  Tensor build(nn::Builder& b, Tensor x) const {
    if (x.rank() > 2) x = ops::reshape(x, {x.dim(0), -1});
    const bool relu = activation_ == Activation::kRelu;
    const auto init = relu ? nn::WeightInit::kHe : nn::WeightInit::kNormal;
    x = nn::Linear(features_, nn::Bias::kAdd, init).build(b, x);
    if (last_) return x;
    x = relu ? ops::relu(x) : ops::gelu(x);
    return b.inlined("dropout", nn::Dropout(dropout_), x);
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
  Tensor build(nn::Builder& b, Tensor x) const {
    for (const auto& layer : layers_) x = layer(b, x);
    return x;
  }

 private:
  nn::Children<Layer> layers_{*this, "fc"};
};

// A perceptron whose results are compared with targets, vectors of `classes` elements.
class Regressor : public Perceptron {
 public:
  using Perceptron::Perceptron;
  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    const Tensor y = Perceptron::build(b, in["input"]);
    train::Results results;
    if (in.mode() == nn::RunMode::kEvaluate) results.predictions = {{"prediction", y, "target"}};
    if (in.wants_losses()) results.losses = {train::mean_squared_error(y, in["target"])};
    return results;
  }
};

}  // namespace

train::Network perceptron(const Sizes& s, Activation activation) {
  const auto batch = [&](int64_t samples) {
    std::vector<int64_t> dims{samples};
    dims.insert(dims.end(), s.sample.begin(), s.sample.end());
    return TensorSpec{Shape(std::move(dims)), f32, {}};
  };
  if (s.loss == Loss::kMeanSquaredError) {
    return train::Network(Regressor(s, activation),
                          {{"input", batch(s.micro_batch), batch(s.eval_batch)},
                           {"target", {{s.micro_batch, s.classes}, f32, {}}}});
  }
  return train::classifier(Perceptron(s, activation), batch(s.micro_batch),
                           {.eval_input = batch(s.eval_batch)});
}

void read_perceptron_sizes(const std::vector<NamedSpec>& weights, Sizes& sizes) {
  const auto shape_of = [&](int64_t layer) -> std::optional<Shape> {
    const std::string name = fmt::format("fc.{}.weight", layer);
    for (const NamedSpec& w : weights) {
      if (w.name == name) return w.spec.shape;
    }
    return std::nullopt;
  };
  int64_t layers = 0, last = 0;
  Sizes found = sizes;
  while (const auto shape = shape_of(layers)) {
    require(shape->rank() == 2 && (layers == 0 || (*shape)[0] == last),
            "fc.{}.weight: must be a matrix with the {} features of the layer before as rows, got "
            "{}; give a file of a perceptron",
            layers, layers == 0 ? "inputs or" : std::to_string(last), to_string(*shape));
    if (layers == 0) found.sample = {(*shape)[0]};
    if (layers == 0) found.width = (*shape)[1];
    last = (*shape)[1];
    ++layers;
  }
  require(layers > 0,
          "fc.0.weight: must be there, got {} other tensors; give a file of a perceptron",
          weights.size());
  found.layers = layers;
  found.classes = last;
  sizes = found;
}

}  // namespace sluice::models
