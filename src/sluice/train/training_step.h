#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/nn/optimizers.h"
#include "sluice/nn/rts.h"
#include "sluice/train/block.h"

namespace sluice::train {

/// The order in which a step runs micro-batches, and the memory that holds tensors between uses.
/// The results have the same bits.
enum class Strategy {
  kResident,  ///< A micro-batch runs through the whole model before the next one. Its activations
              ///< stay on the device.
  kPhased,    ///< A block runs all micro-batches before the next block starts. Activations between
              ///< blocks wait in remote memory, so that the device holds only a few blocks.
};

/// A learning rate that the training program reads from a stream in every run, so that one compiled
/// program serves a schedule (schedule.h).
struct StreamedRate {};

struct StepOptions {
  Strategy strategy = Strategy::kResident;
  int64_t accumulate = 1;  ///< Micro-batches per update.
  Offload offload = {};
  IoMode io_mode = IoMode::kIo;                  ///< Phased only.
  Activations activations = Activations::kKeep;  ///< Phased only.
  /// Fewest elements of a sharded weight. Each replica then updates one shard of it and holds only
  /// that shard's state.
  int64_t shard_threshold = nn::kNeverShard;
  std::variant<double, StreamedRate> learning_rate = 0.05;
  /// Largest norm of the gradients; larger gradients are scaled down to it. The norm is the root of
  /// the sum of squares over all gradients (nn::clip_factor). Resident only: phases update a block
  /// before the gradients of the blocks below it are computed.
  std::optional<double> max_grad_norm = {};
  uint64_t seed = 0;  ///< Seed of the variables' first values.
};

/// Maps logits and labels to (loss (), gradient of the logits).
using Loss = std::function<std::pair<Tensor, Tensor>(const Tensor& logits, const Tensor& labels)>;

/// A program "train" that trains, and a program "eval" that applies the trained weights. A run of
/// "train" takes `accumulate` entries of each input stream, in order of micro-batches. It returns
/// `accumulate` losses.
struct Training {
  H2dStream input;
  H2dStream labels;
  H2dStream seed;  ///< uint32[2]; used only if a block draws.
  bool draws = false;
  /// Learning rate: float32, one entry for each run, if StepOptions::learning_rate is a
  /// StreamedRate.
  std::optional<H2dStream> learning_rate;
  D2hStream loss;
  H2dStream eval_input;
  D2hStream logits;
  nn::NamedTensors variables;  ///< Weights by path, in the training program.
  nn::NamedTensors state;      ///< Optimizer state: "<path of the variable>.<state>".
  int64_t accumulate = 1;      ///< Micro-batches in a run of "train".
  int replicas = 1;
  std::string note;  ///< The request that could not be met, and the reason; else empty.
};

struct ModelSpec {
  std::vector<Block> blocks = {};  ///< At least one.
  TensorSpec input = {};           ///< Spec of a micro-batch's input.
  /// Spec of a micro-batch's labels. Without dimensions: a class for each sample of `input`, int32
  /// of shape (batch).
  TensorSpec labels = {};
  /// Spec of an evaluation batch. Without dimensions: that of `input`.
  TensorSpec eval_input = {};
  /// The blocks for evaluation. Each matches the block of `blocks` at the same index. Empty:
  /// `blocks`, which get no seed.
  std::vector<Block> eval_blocks = {};
  Loss loss = nullptr;  ///< Null: ops::cross_entropy_with_grad().
};

/// Adds the entry graphs "train" and "eval" to `ir`. Gradients are averaged over micro-batches if
/// there are several (spec §4.4), then over replicas. Then the optimizer updates every weight.
/// Fixes the number of replicas. Error{kUsage} if there are no blocks, if `blocks` and
/// `eval_blocks` differ in length, or if `accumulate` is below 1. Error{kUsage} also for offloaded
/// weights without phases and for `max_grad_norm` with phases.
Training build_training(Ir ir, const ModelSpec& model, nn::Optimizer optimizer,
                        const StepOptions& options);

}  // namespace sluice::train
