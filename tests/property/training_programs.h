#pragma once
#include "sluice/nn/layers.h"
#include "sluice/ops/losses.h"
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

/// Locations of a phased step: all in remote memory but accumulators; from `sharded` elements on,
/// as shards.
inline train::TensorLocations all_remote(int64_t sharded = nn::kNeverShard) {
  return {.optimizer = train::Location::kRemote,
          .weights = train::Location::kRemote,
          .activations = train::Location::kRemote,
          .min_elements_sharded = sharded};
}

/// Builds a training step of SmallNetwork.
inline train::Training small_training(Ir& ir, const train::StepOptions& options,
                                      const nn::Optimizer& optimizer) {
  return build_training(ir, train::classifier(SmallNetwork(), f32_spec({2, 6})), optimizer,
                        options);
}

}  // namespace sluice::property
