#include "sluice/models/perceptron.h"

#include <fmt/format.h>

#include "sluice/nn/layers.h"
#include "sluice/ops/ops.h"

namespace sluice::models {
namespace {

constexpr int64_t kSide = 28;  // Pixels.
constexpr int64_t kClasses = 10;

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
  std::string cache_key() const {
    return fmt::format("{} {} {} {}", features_, static_cast<int>(activation_), last_, dropout_);
  }

 private:
  int64_t features_;
  Activation activation_;
  bool last_;
  double dropout_;
};

std::vector<train::Block> blocks(const Sizes& s, Activation activation, double dropout) {
  std::vector<train::Block> result;
  for (int64_t i = 0; i < s.layers; ++i) {
    const bool last = i + 1 == s.layers;
    const bool draws = dropout > 0 && !last;
    result.emplace_back(fmt::format("fc.{}", i),
                        Layer(last ? kClasses : s.width, activation, last, dropout),
                        draws ? train::Block::Draws::kYes : train::Block::Draws::kNo);
  }
  return result;
}

}  // namespace

train::ModelSpec perceptron(const Sizes& s, Activation activation) {
  return {.blocks = blocks(s, activation, s.dropout),
          .input = {{s.micro_batch, kSide, kSide}, f32, {}},
          .eval_input = {{s.eval_batch, kSide, kSide}, f32, {}},
          .eval_blocks = blocks(s, activation, 0)};
}

}  // namespace sluice::models
