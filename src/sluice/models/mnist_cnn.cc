#include "sluice/data/mnist.h"
#include "sluice/models/model.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/ops.h"

namespace sluice::models {
namespace {

constexpr int64_t kHidden = 256;

// A 5 x 5 convolution, the largest of 2 x 2 elements, and ReLU.
class ConvLayer : public nn::Module {
 public:
  explicit ConvLayer(int64_t channels)
      : conv_(*this, "conv", nn::ConvOptions{.channels = channels, .kernel = {5}}) {}
  Tensor build(nn::Builder& b, Tensor x) const { return ops::relu(pool_(b, conv_(b, x))); }

 private:
  nn::Child<nn::Conv2d> conv_;
  nn::Child<nn::MaxPool2d> pool_{*this, "pool", ops::PoolOptions{.kernel = {2}}};
};

// Training returns the logits too, so that it shows its accuracy.
class ConvNet : public nn::Module {
 public:
  explicit ConvNet(const Sizes& s) : dropout_(*this, "dropout", s.dropout) {
    nn::begin_block(layer4_, "B4");  // The loss is in this block, too.
  }

  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    Tensor x = in["input"];
    {
      const nn::Block block(b, "B1");
      x = layer1_(b, ops::reshape(x, {x.dim(0), 1, data::kMnistSide, data::kMnistSide}));
    }
    {
      const nn::Block block(b, "B2");
      x = layer2_(b, x);
    }
    {
      const nn::Block block(b, "B3");
      x = dropout_(b, ops::relu(layer3_(b, ops::flatten(x, 1))));
    }
    x = layer4_(b, x);
    train::Results results{.predictions = {{"logits", x, "labels"}}};
    if (in.wants_losses()) results.losses = {train::cross_entropy(x, in["labels"])};
    return results;
  }

 private:
  static constexpr nn::WeightInit kInit = nn::WeightInit::kUniform;

  // The names are those of document 002, so that its weights load.
  nn::Child<ConvLayer> layer1_{*this, "layer1", 10};
  nn::Child<ConvLayer> layer2_{*this, "layer2", 20};
  nn::Child<nn::Linear> layer3_{*this, "layer3", kHidden, nn::Bias::kAdd, kInit};
  nn::Child<nn::Dropout> dropout_;
  nn::Child<nn::Linear> layer4_{*this, "layer4", data::kMnistClasses, nn::Bias::kAdd, kInit};
};

}  // namespace

// The model of document 002. It can have dropout after its hidden layer.
Model mnist_cnn_model() {
  return {
      .name = "mnist-cnn",
      .doc = "a convolutional network with 90,026 weights on 28 x 28 digits",
      .data = &kDigits,
      .defaults = {{"--optimizer", "adamw"},
                   {"--micro-batch", "40"},
                   {"--accumulate", "10"},
                   {"--device-iterations", "10"},
                   {"--strategy", "pipelined"},
                   {"--test-batch", "8"},
                   {"--test-iterations", "100"},
                   {"--epochs", "3"}},
      .sizes = {"--dropout"},
      .test_sizes = {.micro_batch = 2, .eval_batch = 3, .dropout = 0.25},
      .build = [](const Sizes& s) {
        const TensorSpec images{{s.micro_batch, data::kMnistSide, data::kMnistSide}, f32, {}};
        const TensorSpec eval_images{{s.eval_batch, data::kMnistSide, data::kMnistSide}, f32, {}};
        return train::Network(
            ConvNet(s), train::internal::classifier_fields(images, {.eval_input = eval_images}));
      }};
}

}  // namespace sluice::models
