#pragma once
#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/nn/rts.h"
#include "sluice/nn/update/optimizers.h"
#include "sluice/train/network.h"
#include "sluice/transforms/autodiff.h"

namespace sluice {
class Session;
}

namespace sluice::train {

struct PipelinePlan;

/// Consecutive blocks of a model that run on one device:
///
///     Stage("B1", "B2").device(0)
class Stage {
 public:
  template <typename... Names>
  requires(std::constructible_from<std::string, Names>&&...) explicit Stage(Names&&... blocks)
      : blocks_{std::string(std::forward<Names>(blocks))...} {}
  explicit Stage(std::vector<std::string> blocks) : blocks_(std::move(blocks)) {}

  Stage& device(int number) {
    device_ = number;
    return *this;
  }
  /// The stage runs in the same step of the schedule as the stage before it, on another device or
  /// on the same one. Both read values of earlier steps.
  Stage& concurrent() {
    concurrent_ = true;
    return *this;
  }
  const std::vector<std::string>& blocks() const { return blocks_; }
  bool is_concurrent() const { return concurrent_; }
  const std::optional<int>& device() const { return device_; }

 private:
  std::vector<std::string> blocks_;
  std::optional<int> device_;
  bool concurrent_ = false;
};

/// A micro-batch runs through the whole network before the next one. Its activations stay on the
/// device.
struct ResidentExecution {};

/// A block runs all micro-batches before the next block starts. Activations between blocks wait in
/// remote memory, so that the device holds only a few blocks.
struct PhasedExecution {};

/// The stages of a model: these; or a number of stages, which are balanced by DeviceRates, stage s
/// on device s; or, without any, each block (place_stages()).
using Stages = std::variant<std::vector<Stage>, int>;

/// Each stage runs on its device. A micro-batch runs through all stages before the next one.
struct ShardedExecution {
  Stages stages = {};
};

/// The order in which the stages of a pipeline run the micro-batches of a step. All give the same
/// bits. A schedule is a choice of depths: the depth of a stage is the number of micro-batches that
/// it may have in flight, between their forward and their backward task. With S stages, stage s
/// has these depths:
enum class Schedule {
  kGrouped,      ///< 2(S - s) - 1. Hides the time of messages.
  kInterleaved,  ///< S - s (one forward, one backward). Needs the least memory without idle time.
  kSequential,   ///< 1: a micro-batch ends before the next one begins.
  kAuto,         ///< Between S - s and 2(S - s) - 1, chosen by times and budgets.
};

/// Each stage runs on its device, beside the others, for micro-batches of its own.
struct PipelinedExecution {
  Stages stages = {};
  Schedule schedule = Schedule::kGrouped;
  /// Bytes that each device may use for activations in flight, for kAuto only. Empty: no limit.
  std::vector<int64_t> activation_budgets = {};
};

/// The order in which a step runs micro-batches, and the devices of its blocks. The results have
/// the same bits.
using Strategy =
    std::variant<ResidentExecution, PhasedExecution, ShardedExecution, PipelinedExecution>;

inline ResidentExecution resident() { return {}; }
inline PhasedExecution phased() { return {}; }
/// The arguments are stages, or names of blocks that are stages of their own:
///
///     pipelined("B1", Stage("B2", "B3"), "B4")
template <typename... Names>
ShardedExecution sharded(const Names&... stages) {
  return {std::vector<Stage>{Stage(stages)...}};
}
template <typename... Names>
PipelinedExecution pipelined(const Names&... stages) {
  return {std::vector<Stage>{Stage(stages)...}};
}

/// Rates of a device, by which stages are balanced and kAuto chooses depths. They are fixed rather
/// than measured, so that every process chooses alike.
struct DeviceRates {
  double flops = 1e11;    ///< Floating-point operations per second.
  double copies = 1e10;   ///< Bytes that a copy moves per second: it reads and writes each.
  double messages = 5e9;  ///< Bytes of messages to another device per second.
  double latency = 2e-6;  ///< Seconds that a message takes beyond the time of its bytes.
  bool operator==(const DeviceRates&) const = default;
};

/// A learning rate that the training program reads from a stream in every run, so that one compiled
/// program serves a schedule (learning_rate.h).
struct StreamedRate {
  /// Name of a field of the network (Field::once) that is the rate, so that its ops may read it,
  /// too. Empty: the rate has a stream of its own, `learning_rate`.
  std::string field = {};
};

/// The memory in which a tensor waits between its uses.
enum class Location { kDevice, kRemote };

/// Where the tensors of a training step wait. A tensor in remote memory is loaded before each use.
struct TensorLocations {
  Location optimizer = Location::kDevice;     ///< State: loaded and stored around its update.
  Location weights = Location::kDevice;       ///< Loaded for each block, stored after the update.
                                              ///< Running variables wait in the same memory.
  Location activations = Location::kDevice;   ///< Values that gradients read, and with
                                              ///< phases all values between blocks.
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

/// The reduction of a weight's gradients over the micro-batches of an update. kSum adds them, kMean
/// adds each divided by their number, kRunningMean keeps the mean of those so far. All compute in
/// float32 and round each sum to the accumulator's dtype, micro-batches ascending. With one
/// micro-batch they are the gradient itself.
using transforms::Accumulation;

/// The reduction of gradients over replicas, behind that over micro-batches. Both add in float32,
/// in ascending order of the replicas, and round once to the accumulator's dtype.
enum class ReplicaReduction { kSum, kMean };

using AccumulatorDtypeFunction = std::function<DType(const std::string& path, const TensorSpec&)>;

/// Dtype of an accumulator: absent, that of the variable (or output); one dtype for all; or a
/// function of the path and spec of the variable (or of the name and spec of the output).
using AccumulatorDtype = std::variant<std::monostate, DType, AccumulatorDtypeFunction>;

/// Builds ops that change the gradient of a weight before its update: clip it by value or by its
/// own norm, add decay, cast it.
///
///     [](const Tensor& gradient, const Tensor& variable) { return gradient + 0.01 * variable; }
///
/// `gradient` is reduced over micro-batches and replicas and has the accumulator's dtype.
/// `variable` is the weight before the update; its name() is the weight's path. Both are whole on
/// each replica, also if the weight is updated in shards, so that norms are those of whole tensors.
/// Such a gradient is then reduced whole and cut behind the hook. Returns a floating-point tensor
/// of the variable's shape. The update, and the norm of `max_grad_norm`, take the result in its
/// dtype.
///
/// The hook runs once for each weight, when the programs are built. Each result is a graph of its
/// own, which reads the two arguments and constants only. Gradients of several weights meet in
/// `max_grad_norm` alone.
using GradientHook = std::function<Tensor(const Tensor& gradient, const Tensor& variable)>;

struct StepOptions {
  /// Absent: pipelined if blocks name devices (nn::BlockOptions), else resident.
  std::optional<Strategy> strategy = {};
  DeviceRates rates = {};
  int64_t accumulate = 1;  ///< Micro-batches per update.
  int64_t repeat = 1;      ///< Updates of a run. Phases allow 1 only.
  TensorLocations locations = {};
  IoMode io_mode = IoMode::kIo;  ///< Mode of the transfers that `locations` causes, and of all
                                 ///< transfers of phases.
  Recompute recompute = {};
  std::variant<double, StreamedRate> learning_rate = 0.05;
  Accumulation accumulation_reduction = Accumulation::kRunningMean;
  ReplicaReduction replica_reduction = ReplicaReduction::kMean;
  /// Dtype of the accumulators of gradients: f32, f16 or bf16. A gradient is rounded to it before
  /// it is added, also the only gradient of an update. The sums over the uses of a tied weight and
  /// over replicas have it, too. Updates take gradients of any of these dtypes and compute in
  /// float32.
  AccumulatorDtype accumulator_dtype = {};
  GradientHook gradient_hook = nullptr;
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

/// The reductions of a training program.
struct GradientReductions {
  Accumulation accumulation = Accumulation::kRunningMean;
  ReplicaReduction replicas = ReplicaReduction::kMean;
  std::map<std::string, DType> accumulators = {};  ///< Dtype by path of each trained weight.
};

/// "sum" or "mean".
std::string_view to_string(ReplicaReduction reduction);

/// A program "train" that trains, and a program "eval" that applies the trained weights. A run of
/// "train" takes `accumulate` entries of each field's stream for each of `repeat` updates, in order
/// of micro-batches. It returns as many entries of each loss and prediction, or one for each update
/// of those that are summed (Writing).
struct Training {
  std::vector<H2dStream> fields;       ///< Fields that training reads, in the network's order.
  std::vector<H2dStream> eval_fields;  ///< Fields that evaluation reads.
  std::vector<H2dStream> inputs;       ///< Fields with Field::once, which have one entry for each
                                       ///< run, except that of the learning rate.
  std::optional<H2dStream> seed;       ///< uint32[2], if the network draws.
  /// Learning rate: float32, one entry for each run, if StepOptions::learning_rate is a
  /// StreamedRate.
  std::optional<H2dStream> learning_rate;
  std::vector<D2hStream> losses;            ///< Written ones, in the order of Results::losses.
  std::vector<double> loss_weights;         ///< Loss::weight of each.
  std::vector<D2hStream> predictions;       ///< Written ones of Results::predictions.
  std::vector<std::string> summed;          ///< Names of results that are summed.
  std::vector<D2hStream> eval_predictions;  ///< Predictions of "eval".
  nn::NamedTensors variables;               ///< Weights and running variables by path, in the
                                            ///< training program.
  nn::NamedTensors state;                   ///< Optimizer state: "<path of the variable>.<state>".
  std::vector<TorchWeight> torch_weights;   ///< One for each weight.
  int64_t accumulate = 1;                   ///< Micro-batches of an update.
  int64_t repeat = 1;                       ///< Updates in a run of "train".
  int replicas = 1;
  int devices = 1;                               ///< Devices of a replica that the stages need.
  std::shared_ptr<const PipelinePlan> pipeline;  ///< Null unless it is sharded or pipelined.
  GradientReductions reductions;                 ///< Unused without training.
  std::string note;  ///< The request that could not be met, and the reason; else empty.
};

/// Adds the entry graphs "train" and "eval" to `ir`. The network is cut into its blocks (cut.h).
/// Gradients are reduced over micro-batches, then over replicas, and pass the hook. Then the
/// optimizer updates every weight. Running variables (nn::Builder::update_running) are
/// updated after each micro-batch and averaged over replicas after the last one. Fixes the number
/// of replicas. Error{kUsage} for the faults that Network::build(), cut() and recompute() name, if
/// `accumulate` or `repeat` is below 1, if the optimizer trains no weight, and if no loss depends
/// on a weight that the optimizer trains. Error{kUsage} for an accumulator's dtype that is not f32,
/// f16 or bf16, and for a hook's result of another shape or graph, with the weight.
Training build_training(Ir ir, const Network& network, nn::Optimizer optimizer,
                        const StepOptions& options);

/// Adds the entry graph "eval" alone to `ir`. A run takes `options.accumulate` entries of each
/// field's stream and one of each of Training::inputs, and returns as many of each prediction; with
/// `options.repeat`, that many times as many. A pipeline of S stages runs D micro-batches in
/// D + S - 1 iterations. Error{kUsage} as for build_training(), with phases, and for
/// options of gradients and updates.
Training build_inference(Ir ir, const Network& network, const StepOptions& options);

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
