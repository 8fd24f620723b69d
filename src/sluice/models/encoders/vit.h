#pragma once
#include <cstdint>

#include "sluice/train/network.h"

namespace sluice::models {

/// The sizes of a vision transformer. The defaults equal ViT-B/16.
struct VitSizes {
  int64_t channels = 3;
  int64_t image_height = 224;  ///< Pixels; a multiple of `patch`.
  int64_t image_width = 224;   ///< Pixels; a multiple of `patch`.
  int64_t patch = 16;          ///< Pixels of a side of a patch.
  int64_t classes = 1000;
  int64_t blocks = 12;
  int64_t heads = 12;       ///< Heads of an attention; divides `width`.
  int64_t width = 768;      ///< Elements of an embedding.
  int64_t hidden = 0;       ///< Elements of a hidden layer; 0: 4·width.
  double dropout = 0;       ///< Probability, in training.
  double epsilon = 1e-12;   ///< Added to variances in norms.
  int64_t micro_batch = 8;  ///< Samples of a micro-batch.
  int64_t eval_batch = 8;   ///< Samples of an evaluation step.
};

/// A vision transformer (Dosovitskiy et al., 2021) that classifies images. The field `input` has
/// the images (samples, channels, image_height, image_width), float32. In training, `labels` has a
/// class for each, int32, and the loss is the mean cross entropy. Evaluation returns `logits`
/// (samples, classes). A sample is its patches after a class token, with learned positions. Blocks
/// normalize before attention and perceptron. The weights have the names in checkpoints of Hugging
/// Face's ViTForImageClassification. Error{kUsage} unless sizes are at least 1, the patch
/// divides the sides of the image, the heads divide the width, dropout is in [0, 1) and epsilon is
/// positive.
train::Network vit(const VitSizes& sizes);

}  // namespace sluice::models
