#include "sluice/models/encoders/vit.h"

#include "sluice/models/model.h"

namespace sluice::models {

// The sizes of ViT-Tiny, for small images.
Model vit_model() {
  return {.name = "vit",
          .doc = "a vision transformer on the patches of 32 x 32 colour images",
          .data = &kObjects,
          .defaults = {{"--width", "192"},
                       {"--heads", "3"},
                       {"--optimizer", "adamw"},
                       {"--micro-batch", "32"},
                       {"--test-batch", "32"}},
          .sizes = {"--blocks", "--heads", "--width", "--dropout"},
          .test_sizes = {.micro_batch = 2,
                         .eval_batch = 3,
                         .width = 16,
                         .dropout = 0.25,
                         .blocks = 2,
                         .heads = 2},
          .build = [](const Sizes& s) {
            return vit({.image_height = 32,
                        .image_width = 32,
                        .patch = 4,
                        .classes = 10,
                        .blocks = s.blocks,
                        .heads = s.heads,
                        .width = s.width,
                        .dropout = s.dropout,
                        .micro_batch = s.micro_batch,
                        .eval_batch = s.eval_batch});
          }};
}

}  // namespace sluice::models
