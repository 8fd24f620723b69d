#include "sluice/models/perceptron.h"

namespace sluice::models {

Model mlp_model() {
  return {
      .name = "mlp",
      .doc = "mnist with ReLU and weights that keep the variance of activations",
      .data = &kDigits,
      .test_sizes = {.micro_batch = 2, .eval_batch = 4, .layers = 5, .width = 16, .dropout = 0.25},
      .fits_any_samples = true,
      .has_loss_option = true,
      .read_sizes = read_perceptron_sizes,
      .build = [](const Sizes& s) { return perceptron(s, Activation::kRelu); }};
}

}  // namespace sluice::models
