#include "sluice/models/perceptron.h"

namespace sluice::models {

// The model of document 000: phased execution.
Model mnist_phased_model() {
  return {.name = "mnist-phased",
          .doc = "mnist a layer at a time, with all variables in remote memory",
          .data = &kDigits,
          .defaults = {{"--optimizer", "adam-f16"},
                       {"--micro-batch", "8"},
                       {"--accumulate", "4"},
                       {"--replicas", "2"},
                       {"--shard-threshold", "512"},
                       {"--strategy", "phased"}},
          .test_sizes = {.micro_batch = 2, .eval_batch = 4, .layers = 3, .width = 24},
          .build = [](const Sizes& s) { return perceptron(s, Activation::kGelu); }};
}

}  // namespace sluice::models
