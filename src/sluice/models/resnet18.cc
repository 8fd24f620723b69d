#include "sluice/base/error.h"
#include "sluice/models/resnet.h"

namespace sluice::models {

// ResNet-18 for small images: the first convolution is 3 x 3, and no pool follows it.
Model resnet18_model() {
  return {.name = "resnet18",
          .doc = "a residual network with 18 layers on 32 x 32 colour images",
          .data = &kObjects,
          .defaults = {{"--optimizer", "adamw"}, {"--micro-batch", "32"}},
          .sizes = {"--width"},
          .test_sizes = {.micro_batch = 2, .eval_batch = 3, .width = 32},
          .build = [](const Sizes& s) {
            require(
                s.width % 8 == 0,
                "resnet18: width, the channels of the last stage, must be a multiple of 8, got {}",
                s.width);
            const int64_t w = s.width / 8;
            return resnet({.channels = {w, 2 * w, 4 * w, 8 * w}, .blocks = 2}, s);
          }};
}

}  // namespace sluice::models
