#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/nn/optimizers.h"
#include "sluice/nn/rts.h"
#include "sluice/train/block.h"
#include "sluice/train/phased_layer.h"

namespace sluice::train {

/// In which order a step runs a model's micro-batches, and where its tensors wait meanwhile. The bits are the same.
enum class Strategy {
  kResident,  ///< A micro-batch runs through the whole model before the next; all stays on the device.
  kPhased,  ///< A block runs all micro-batches before the next block starts; activations between blocks wait in remote
            ///< memory, so that the device holds a few blocks at a time.
};

struct StepOptions {
  Strategy strategy = Strategy::kResident;
  int64_t accumulate = 1;  ///< Micro-batches an update.
  Offload offload;
  IoMode io_mode = IoMode::kIo;                  ///< Phased only.
  Activations activations = Activations::kKeep;  ///< Phased only.
  /// Of weights of so many elements a replica updates its shard and holds the shard's state.
  int64_t shard_threshold = nn::kNeverShard;
  double learning_rate = 0.05;
  /// Gradients are scaled so that the root of the sum of squares of all of them is at most this (nn::clip_factor). Resident
  /// only: phases update a block before the gradients of the blocks below it are there.
  std::optional<double> max_grad_norm;
  uint64_t seed = 0;  ///< Of first values.
};

/// From logits and labels to (loss (), gradient of the logits).
using Loss = std::function<std::pair<Tensor, Tensor>(const Tensor& logits, const Tensor& labels)>;

/// A program that trains, and another that applies what was learned. A run of the first takes `accumulate` entries of each
/// input stream, in order of micro-batches, and gives as many losses.
struct Training {
  H2dStream input;
  H2dStream labels;
  H2dStream seed;  ///< uint32[2], if a block draws; else unused.
  bool draws = false;
  D2hStream loss;
  H2dStream eval_input;
  D2hStream logits;
  nn::NamedTensors variables;  ///< Weights by path, in the training program.
  nn::NamedTensors state;      ///< Of the optimizer: "<path of the variable>.<state>".
  std::string note;            ///< Where a wish could not be met, and why; else empty.
};

struct ModelSpec {
  std::vector<Block> blocks;  ///< At least one.
  TensorSpec input;           ///< Of a micro-batch.
  TensorSpec labels;
  TensorSpec eval_input;           ///< Of a batch of the evaluation.
  std::vector<Block> eval_blocks;  ///< The same model when evaluating.
  Loss loss;
};

/// Adds the entry graphs "train" and "eval" to `ir`. The gradients of micro-batches are averaged (spec §4.4) when there are
/// several, then those of the replicas, then the optimizer updates every weight. Fixes the number of replicas.
/// Errors (kUsage): no blocks; accumulate below 1; weights offloaded without phases; a largest norm with phases.
Training build_training(Ir ir, const ModelSpec& model, nn::Optimizer optimizer,
                        const StepOptions& options);

}  // namespace sluice::train
