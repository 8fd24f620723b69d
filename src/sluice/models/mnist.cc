#include "sluice/models/perceptron.h"

namespace sluice::models {

Model mnist_model() {
  return {.name = "mnist",
          .doc = "a multilayer perceptron with GELU on 28 x 28 digits",
          .data = &kDigits,
          .test_sizes = {.micro_batch = 2, .eval_batch = 4, .layers = 3, .width = 24},
          .build = [](const Sizes& s) { return perceptron(s, Activation::kGelu); }};
}

}  // namespace sluice::models
