#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "sluice/train/network.h"

namespace sluice::property {

/// The recipe of a random network: equal recipes produce equal networks. Each decision draws
/// numbers from its own key, so that leaving it out changes little else.
struct NetworkRecipe {
  uint64_t seed = 0;
  std::set<uint64_t> skipped = {};  ///< Keys of decisions to leave out.
};

/// Counts of the features of a network, each as often as the training network has it.
struct NetworkCensus {
  int reopened = 0, rows = 0, tied = 0, losses = 0, own_gradients = 0, predictions = 0;
  int calls = 0, conditionals = 0, in_place = 0, draws = 0, running = 0;
  NetworkCensus& operator+=(const NetworkCensus& other);
};

struct RandomNetwork {
  train::Network network;
  std::vector<uint64_t> decisions;  ///< Keys of the decisions, in order.
  NetworkCensus census;
};

/// Generates a network of 1 to 16 blocks on tiny tensors. Blocks are named by scopes, by properties
/// and begin marks of submodules, or are the submodules. The network may have skips over any
/// distance, tied weights, rows of equal blocks, one to three losses with and without gradients of
/// their own, predictions in any block, fields that several blocks read, seeds that several blocks
/// share, updates in place, calls of shared graphs, conditionals, running variables, and values
/// without a gradient.
RandomNetwork random_network(const NetworkRecipe& recipe);

}  // namespace sluice::property
