#include "sluice/models/perceptron.h"

namespace sluice::models {

// The model of document 003: replicated tensor sharding (RTS).
Model mnist_rts_model() {
  return {.name = "mnist-rts",
          .doc = "mnist on replicas that keep shards of Adam's state in remote memory",
          .data = &kDigits,
          .defaults = {{"--optimizer", "adam-f16"},
                       {"--micro-batch", "8"},
                       {"--accumulate", "8"},
                       {"--replicas", "4"},
                       {"--shard-threshold", "512"},
                       {"--offload", "optimizer"}},
          .test_sizes = {.micro_batch = 2, .eval_batch = 4, .layers = 3, .width = 24},
          .build = [](const Sizes& s) { return perceptron(s, Activation::kGelu); }};
}

}  // namespace sluice::models
