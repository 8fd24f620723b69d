#pragma once
#include <optional>

#include "sluice/nn/layers.h"
#include "sluice/ops/ops.h"
#include "sluice/session/session.h"
#include "sluice/train/training_step.h"

namespace sluice::property {

/// Five layers; three of them have equal shapes.
class SmallNetwork : public nn::Module {
 public:
  SmallNetwork() {
    for (int i = 0; i < 4; ++i) layers_.add(8);
  }
  Tensor build(nn::Builder& b, Tensor x) const {
    for (const auto& layer : layers_) x = ops::gelu(layer(b, x));
    return last_(b, x);
  }

 private:
  nn::Children<nn::Linear> layers_{*this, "fc"};
  nn::Child<nn::Linear> last_{*this, "last", 3};
};

/// A network with a skip over two blocks, a weight that two blocks use, three equal blocks with
/// running variables, and two losses.
class SkipNetwork : public nn::Module {
 public:
  SkipNetwork() {
    for (int i = 0; i < 3; ++i) {
      layers_.add(6);
      norms_.add();
    }
  }
  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    const Tensor w = b.add_variable_input("tied", nn::normal(0, 0.5), {6, 6});
    std::optional<nn::Block> block(std::in_place, b, "first");
    const Tensor first = ops::tanh(ops::matmul(in["input"], w));
    const Tensor aside = ops::mean(first * first);
    Tensor x = first;
    for (size_t i = 0; i < layers_.size(); ++i) {
      block.emplace(b, fmt::format("row{}", i));
      x = ops::gelu(norms_[i](b, layers_[i](b, x))) * first;
    }
    block.emplace(b, "last");
    const Tensor logits = last_(b, ops::matmul(x, ops::transpose(w)) + first);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", logits}}};
    return {.losses = {train::cross_entropy(logits, in["labels"]),
                       {.name = "aside", .value = aside, .weight = 0.25}}};
  }

 private:
  nn::Children<nn::Linear> layers_{*this, "fc"};
  nn::Children<nn::BatchNorm> norms_{*this, "norm"};
  nn::Child<nn::Linear> last_{*this, "last", 5};
};

inline train::Network skip_network() {
  return {SkipNetwork(),
          {{.name = "input", .spec = f32_spec({2, 6})}, {.name = "labels", .spec = i32_spec({2})}}};
}

/// Locations of a phased step: all in remote memory but accumulators; from `sharded` elements on,
/// as shards.
inline train::TensorLocations all_remote(int64_t sharded = nn::kNeverShard) {
  return {.optimizer = train::Location::kRemote,
          .weights = train::Location::kRemote,
          .activations = train::Location::kRemote,
          .min_elements_sharded = sharded};
}

/// Builds a training step of SmallNetwork.
inline train::Training small_training(Ir& ir, const train::Options& options,
                                      const nn::Optimizer& optimizer) {
  return build_training(ir, train::classifier(SmallNetwork(), f32_spec({2, 6})), optimizer,
                        options);
}

}  // namespace sluice::property
