#pragma once
#include "sluice/nn/layers.h"
#include "sluice/ops/losses.h"
#include "sluice/session/session.h"
#include "sluice/train/training_step.h"

namespace sluice::property {

/// A linear layer, followed by GELU unless it is the last.
class SmallLayer : public nn::Module {
 public:
  SmallLayer(int64_t width, bool last) : width_(width), last_(last) {}
  Tensor build(nn::Builder& b, Tensor x, const Tensors&) const {
    const Tensor y = nn::Linear(width_).build(b, x);
    return last_ ? y : ops::gelu(y);
  }
  std::string cache_key() const { return fmt::format("{} {}", width_, last_); }

 private:
  int64_t width_;
  bool last_;
};

/// Builds a training step of five layers; three of them have equal shapes.
inline train::Training small_training(Ir& ir, const train::StepOptions& options,
                                      const nn::Optimizer& optimizer) {
  train::ModelSpec model;
  for (int i = 0; i < 4; ++i)
    model.blocks.emplace_back(fmt::format("fc.{}", i), SmallLayer(8, false));
  model.blocks.emplace_back("last", SmallLayer(3, true));
  model.eval_blocks = model.blocks;
  model.input = f32_spec({2, 6});
  model.labels = i32_spec({2});
  model.eval_input = f32_spec({2, 6});
  model.loss = [](const Tensor& logits, const Tensor& labels) {
    return ops::cross_entropy_with_grad(logits, labels);
  };
  return build_training(ir, model, optimizer, options);
}

}  // namespace sluice::property
