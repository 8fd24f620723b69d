#include "sluice/models/resnet.h"

namespace sluice::models {

// The network of MLPerf Tiny's image classification (Banbury et al., 2021).
Model resnet8_model() {
  return {.name = "resnet8",
          .doc = "MLPerf Tiny's residual network with 8 layers on 32 x 32 colour images",
          .data = &kObjects,
          .defaults = {{"--optimizer", "adam"}, {"--micro-batch", "32"}},
          .sizes = {},
          .test_sizes = {.micro_batch = 2, .eval_batch = 3},
          .build = [](const Sizes& s) {
            return resnet({.channels = {16, 32, 64}, .blocks = 1, .keras = true}, s);
          }};
}

}  // namespace sluice::models
