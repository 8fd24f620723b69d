#pragma once
#include <vector>

#include "sluice/models/model.h"

namespace sluice::models {

/// A residual network (He et al., 2015) on images of 3 x 32 x 32 pixels with 10 classes. A 3 x 3
/// convolution with batch norm and ReLU is followed by stages of residual blocks, the mean over all
/// positions and a linear layer.
struct ResNet {
  std::vector<int64_t> channels;  ///< Channels of each stage. From the second on, its first block
                                  ///< halves both sides of the image.
  int64_t blocks = 1;             ///< Residual blocks of a stage.
  /// The convolutions have a bias, and their padding is `same`: an odd zero is at the end. The
  /// shortcut between stages has no norm. This is Keras' form.
  bool keras = false;
};

train::Network resnet(const ResNet& net, const Sizes& sizes);

}  // namespace sluice::models
