#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sluice/nn/rts.h"
#include "sluice/nn/update/optimizers.h"
#include "sluice/train/network.h"

namespace sluice {
class Session;
}

namespace sluice::train {

/// The order in which a step runs micro-batches, and the memory that holds tensors between uses.
/// The results have the same bits.
enum class Strategy {
  kResident,  ///< A micro-batch runs through the whole network before the next one. Its activations
              ///< stay on the device.
  kPhased,    ///< A block runs all micro-batches before the next block starts. Activations between
              ///< blocks wait in remote memory, so that the device holds only a few blocks.
};

/// A learning rate that the training program reads from a stream in every run, so that one compiled
/// program serves a schedule (schedule.h).
struct StreamedRate {};

/// The memory in which a tensor waits between its uses.
enum class Location { kDevice, kRemote };

/// Where the tensors of a training step wait. A tensor in remote memory is loaded before each use.
struct TensorLocations {
  Location optimizer = Location::kDevice;     ///< State: loaded and stored around its update.
  Location weights = Location::kDevice;       ///< Loaded for each block, stored after the update.
                                              ///< Running variables wait in the same memory.
  Location activations = Location::kDevice;   ///< Values that gradients read, and with
                                              ///< Strategy::kPhased all values between blocks.
  Location accumulators = Location::kDevice;  ///< Means of gradients: loaded and stored around each
                                              ///< addition; in phases, until the update.
  int64_t min_elements_off_device = 2;  ///< Smaller tensors stay on the device. Phases with remote
                                        ///< activations move whole blocks and allow 2 only.
  /// Fewest elements of a sharded weight. Each replica then updates one shard of it and holds only
  /// that shard's state.
  int64_t min_elements_sharded = nn::kNeverShard;

  /// All but accumulators in remote memory, the usual form of phases.
  static TensorLocations phased() {
    return {.optimizer = Location::kRemote,
            .weights = Location::kRemote,
            .activations = Location::kRemote};
  }
  bool operator==(const TensorLocations&) const = default;
};

/// Blocks that compute their inner activations again for their gradients instead of keeping them.
struct Recompute {
  bool all = false;
  std::vector<std::string> blocks = {};  ///< Names of blocks; without `all`.

  static Recompute none() { return {}; }
  static Recompute every_block() { return {.all = true}; }
  bool operator==(const Recompute&) const = default;
};

struct StepOptions {
  Strategy strategy = Strategy::kResident;
  int64_t accumulate = 1;  ///< Micro-batches per update.
  TensorLocations locations = {};
  IoMode io_mode = IoMode::kIo;  ///< Mode of the transfers that `locations` causes, and of all
                                 ///< transfers of phases.
  Recompute recompute = {};
  std::variant<double, StreamedRate> learning_rate = 0.05;
  /// Largest norm of the gradients; larger gradients are scaled down to it. The norm is the root of
  /// the sum of squares over all gradients (nn::clip_factor). Phases then keep the gradients, and
  /// visit each block again to update it.
  std::optional<double> max_grad_norm = {};
  uint64_t seed = 0;  ///< Seed of the variables' first values.
};

/// A weight and its counterpart in the state_dict of the PyTorch module of the same structure.
struct TorchWeight {
  std::string path;         ///< Key of Training::variables.
  std::string name;         ///< Key of the state_dict.
  bool transposed = false;  ///< PyTorch stores the matrix with its axes exchanged.
};

/// A program "train" that trains, and a program "eval" that applies the trained weights. A run of
/// "train" takes `accumulate` entries of each field's stream, in order of micro-batches. It returns
/// as many entries of each loss and prediction.
struct Training {
  std::vector<H2dStream> fields;       ///< Fields that training reads, in the network's order.
  std::vector<H2dStream> eval_fields;  ///< Fields that evaluation reads.
  std::optional<H2dStream> seed;       ///< uint32[2], if the network draws.
  /// Learning rate: float32, one entry for each run, if StepOptions::learning_rate is a
  /// StreamedRate.
  std::optional<H2dStream> learning_rate;
  std::vector<D2hStream> losses;            ///< In the order of Results::losses.
  std::vector<double> loss_weights;         ///< Loss::weight of each.
  std::vector<D2hStream> predictions;       ///< In the order of Results::predictions.
  std::vector<D2hStream> eval_predictions;  ///< Predictions of "eval".
  nn::NamedTensors variables;               ///< Weights and running variables by path, in the
                                            ///< training program.
  nn::NamedTensors state;                   ///< Optimizer state: "<path of the variable>.<state>".
  std::vector<TorchWeight> torch_weights;   ///< One for each weight.
  int64_t accumulate = 1;                   ///< Micro-batches in a run of "train".
  int replicas = 1;
  std::string note;  ///< The request that could not be met, and the reason; else empty.
};

/// Adds the entry graphs "train" and "eval" to `ir`. The network is cut into its blocks (cut.h).
/// Gradients are averaged over micro-batches if there are several (spec §4.4), then over replicas.
/// Then the optimizer updates every weight. Running variables (nn::Builder::update_running) are
/// updated after each micro-batch and averaged over replicas after the last one. Fixes the number
/// of replicas. Error{kUsage} for the faults that Network::build(), cut() and recompute() name, if
/// `accumulate` is below 1, and if no loss depends on a weight that the optimizer trains.
Training build_training(Ir ir, const Network& network, nn::Optimizer optimizer,
                        const StepOptions& options);

/// Sets the weights of a session on these programs from a safetensors file that holds the
/// state_dict of the PyTorch module of the same structure; dtypes are converted. Optimizer state
/// does not change. Returns the names in the file that match no weight. Error{kBadFile} if a weight
/// is missing or has another shape; then no weight is set. Error{kUsage} if processes read
/// different values.
std::vector<std::string> load_torch_weights(Session& session, const Training& training,
                                            const std::string& path);
/// Writes the weights to such a file. The first process of a group writes it; the others return
/// after it is written.
void save_torch_weights(Session& session, const Training& training, const std::string& path);

}  // namespace sluice::train
