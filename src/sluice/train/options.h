#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/nn/rts.h"
#include "sluice/session/options.h"
#include "sluice/transforms/autodiff.h"

namespace sluice::data {
class InfeedQueue;
class OutfeedQueue;
}  // namespace sluice::data

namespace sluice::train {

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

/// The stages of a model: a list; or a number of stages, which are balanced by DeviceRates, stage s
/// on device s. With neither, each block is a stage (assign_stages()).
using Stages = std::variant<std::vector<Stage>, int>;

/// A block runs all micro-batches of a group before the next block starts. Activations between
/// blocks wait in remote memory, so that the device holds only a few blocks.
struct PhasedExecution {
  /// Stages on devices, as of a pipeline: while a stage runs a group, the next stage runs the group
  /// before. Absent: all blocks are on one device.
  std::optional<Stages> stages = {};
  /// Micro-batches that visit a block together, a divisor of Options::accumulate. 0: all.
  int64_t group = 0;
};

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

/// Each stage runs on its device, concurrently with the others, for micro-batches of its own.
struct PipelinedExecution {
  Stages stages = {};
  Schedule schedule = Schedule::kGrouped;
  /// Bytes that each device may use for activations in flight, for kAuto only. Empty: no limit.
  std::vector<int64_t> activation_budgets = {};
};

struct Order;
struct StepDependences;

/// Each stage runs on its device, in an order that a function returns (order/strategies.h). It is
/// checked by check_order(), and calls for an evaluation that is sharded.
struct OrderedExecution {
  Stages stages = {};
  std::function<Order(const StepDependences& step)> order = nullptr;
};

/// The order in which a step runs micro-batches, and the devices of its blocks. The results have
/// the same bits.
using Strategy = std::variant<ResidentExecution, PhasedExecution, ShardedExecution,
                              PipelinedExecution, OrderedExecution>;

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

/// A message between two devices of each replica of a step.
struct StepMessage {
  int from = 0;
  int to = 0;
  int devices = 1;  ///< Devices of a replica.
  int replicas = 1;
  int64_t bytes = 0;
};

/// Rates of a device, by which stages are balanced and kAuto chooses depths. They are fixed, not
/// measured, so that every process makes the same choice.
struct DeviceRates {
  double flops = 1e11;    ///< Floating-point operations per second.
  double copies = 1e10;   ///< Bytes that a copy moves per second: it reads and writes each.
  double messages = 5e9;  ///< Bytes of messages to another device per second.
  double latency = 2e-6;  ///< Seconds that a message takes beyond the time of its bytes.
  /// Returns the seconds of a message. Null: those by `messages` and `latency` for each message.
  std::function<double(const StepMessage& message)> message_seconds = nullptr;
};

/// A learning rate that the training program reads from a stream, so that one compiled program
/// serves a schedule (LearningRateSchedule). The stream has an entry for each update of a run.
struct StreamedRate {
  /// Name of a field of the network (Field::once) that is the rate, so that its ops may read it,
  /// too. It has one entry for all updates of a run. Empty: the rate has a stream of its own,
  /// `learning_rate`.
  std::string field = {};
};

/// The learning rate of a training: a constant, a finite float32 of at least 0; or a stream.
/// Absent: the constant nn::Optimizer::default_learning_rate().
using LearningRate = std::variant<std::monostate, double, StreamedRate>;

/// The learning rate after the warm-up. s counts the steps after the warm-up from 0, n is their
/// number (`steps` - `warmup_steps`), and the other names are members of LearningRateSchedule. The
/// classes are those of torch.optim.lr_scheduler, with whose rates these agree.
enum class Decay : uint8_t {
  kConstant,  ///< peak.
  kLinear,    ///< minimum + (peak - minimum)·(1 - s / n).
  kCosine,    ///< minimum + (peak - minimum)·(1 + cos(π·s / n)) / 2 (CosineAnnealingLR).
  /// Cosine cycles of `period`, period·multiplier, period·multiplier², … steps, each from the peak
  /// to the minimum (CosineAnnealingWarmRestarts; Loshchilov and Hutter, 2017).
  kRestarts,
  kStep,         ///< peak·factor^⌊s / period⌋ (StepLR).
  kMilestones,   ///< peak·factor^m after m of the milestones (MultiStepLR).
  kOneCycle,     ///< Up to the peak and down again in `steps` (OneCycleLR; Smith and Topin, 2018).
  kInverseSqrt,  ///< peak / √(1 + s / period) (Vaswani et al., 2017). Not a class of PyTorch.
  kPlateau,      ///< peak·PlateauState::factor (ReduceLROnPlateau).
  kFunction,     ///< function(step), without a warm-up.
};

/// Parameters of Decay::kOneCycle, as of OneCycleLR. The rate begins at start = peak / div_factor
/// and ends at start / final_div_factor. After the last step it keeps its last value.
struct OneCycle {
  enum class Anneal : uint8_t { kCosine, kLinear };
  double pct_start = 0.3;         ///< Fraction of the steps in which the rate rises, in (0, 1).
  double div_factor = 25;         ///< At least 1.
  double final_div_factor = 1e4;  ///< At least 1.
  Anneal anneal = Anneal::kCosine;
  /// Whether the rate falls to its start as fast as it rose, before it falls to its end.
  bool three_phase = false;
  bool operator==(const OneCycle&) const = default;
};

/// Parameters of Decay::kPlateau, as of ReduceLROnPlateau: the rate is multiplied by
/// LearningRateSchedule::factor when a value of the validation has not improved for a while. Its
/// lower limit is LearningRateSchedule::minimum.
struct Plateau {
  enum class Mode : uint8_t { kMin, kMax };  ///< Whether smaller or larger values are better.
  enum class ThresholdMode : uint8_t { kRelative, kAbsolute };
  Mode mode = Mode::kMin;
  int64_t patience = 10;    ///< Values without improvement that do not reduce the rate.
  double threshold = 1e-4;  ///< Difference from the best value that is an improvement.
  ThresholdMode threshold_mode = ThresholdMode::kRelative;  ///< kRelative: times the best value.
  int64_t cooldown = 0;   ///< Values after a reduction that do not count as bad.
  double epsilon = 1e-8;  ///< A reduction of the rate by at most this is left out.
  bool operator==(const Plateau&) const = default;
};

/// The state of Decay::kPlateau between two validations. A checkpoint may store it.
struct PlateauState {
  std::optional<double> best = {};  ///< Best value so far; absent before the first one.
  int64_t bad = 0;                  ///< Values since the last improvement or reduction.
  int64_t cooldown = 0;             ///< Values until bad values count again.
  double factor = 1;                ///< Product of the reductions.
  bool operator==(const PlateauState&) const = default;
};

/// Learning rates of a run, step by step, for a program whose rate is a stream
/// (Options::learning_rate). A member that `decay` does not use must have its default.
struct LearningRateSchedule {
  Decay decay = Decay::kConstant;
  double peak = 0.05;        ///< The rate after the warm-up.
  int64_t warmup_steps = 0;  ///< Step s of these has the rate peak · (s + 1) / warmup_steps.
  int64_t steps = 1;         ///< Steps of the run, after which kLinear and kCosine keep their last
                             ///< value: the minimum.
  /// The rate at the end of a decay or cycle, at most `peak`. For kStep, kMilestones, kInverseSqrt
  /// and kPlateau, the lower limit of the rate after the warm-up.
  double minimum = 0;
  /// Steps of the first cycle (kRestarts) or between two reductions (kStep), or the time scale of
  /// kInverseSqrt; absent there: warmup_steps.
  std::optional<int64_t> period = {};
  int64_t multiplier = 1;  ///< Length of a cycle by that of the cycle before it (kRestarts).
  double factor = 0.1;     ///< Factor of a reduction (kStep, kMilestones, kPlateau).
  /// For kMilestones: steps, ascending and after the warm-up, from which on the rate is reduced.
  std::vector<int64_t> milestones = {};
  OneCycle one_cycle = {};
  Plateau plateau = {};
  std::function<double(int64_t step)> function = nullptr;  ///< For kFunction.

  /// Returns the rate of step `step`, counted from 0. `state` is that of kPlateau; other decays
  /// ignore it.
  double at(int64_t step, const PlateauState& state = {}) const;
  /// Updates the state of kPlateau by the value of a validation; NaN is not an improvement. Other
  /// decays leave the state unchanged.
  void observe(PlateauState& state, double value) const;
};

/// Error{kUsage} "<what>.<member>: must be …" for a member that is out of range, missing or without
/// effect.
void check_schedule(std::string_view what, const LearningRateSchedule& schedule);

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
  /// Smaller tensors stay on the device. In phases with remote activations, 2 moves scalars, too;
  /// equal blocks with a variable on the device do not run in a loop; and all values between phases
  /// move.
  int64_t min_elements_off_device = 2;
  /// Fewest elements of a sharded weight. Each replica then updates one shard of it and holds only
  /// that shard's state.
  int64_t min_elements_sharded = nn::kNeverShard;

  /// All tensors except accumulators in remote memory, the usual form of phases.
  static TensorLocations phased() {
    return {.optimizer = Location::kRemote,
            .weights = Location::kRemote,
            .activations = Location::kRemote};
  }
  bool operator==(const TensorLocations&) const = default;
};

/// How the tensors in remote memory are chosen.
enum class Offload : uint8_t {
  kGiven,  ///< By Options::locations alone.
  /// By the budgets of the devices (plan/plan.h). Phases first move weights, state and activations.
  /// While the program does not fit, one more kind leaves the device: the optimizer's state, then
  /// accumulators, then activations; in inference, weights. Those of Options::locations are always
  /// in remote memory.
  kAutomatic
};
inline constexpr Offload automatic = Offload::kAutomatic;

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

/// The reduction of gradients over replicas, after that over micro-batches. Both add in float32, in
/// ascending order of the replicas, and round once to the accumulator's dtype.
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
/// Such a gradient is then reduced whole and cut after the hook. Returns a floating-point tensor
/// of the variable's shape. The update, and the norm of `max_grad_norm`, take the result in its
/// dtype.
///
/// The hook runs once for each weight, when the programs are built. Each result is a graph of its
/// own, which reads only the two arguments and constants. Only `max_grad_norm` combines gradients
/// of several weights.
using GradientHook = std::function<Tensor(const Tensor& gradient, const Tensor& variable)>;

/// The micro-batches of a run whose results it returns. With N micro-batches an update, D updates a
/// run and R replicas, a result has one entry for each of:
struct Output {
  enum class Mode : uint8_t {
    kAll,    ///< D · N · R micro-batches.
    kFinal,  ///< R: the last micro-batch of each replica.
    kSum,    ///< R: the sum over all micro-batches of a replica.
    kEvery,  ///< (D / period) · N · R: those of the updates period - 1, 2 · period - 1, ….
  };
  Mode mode = Mode::kAll;
  int64_t period = 1;  ///< For kEvery: a divisor of D.

  static Output all() { return {}; }
  static Output final() { return {Mode::kFinal}; }
  static Output sum() { return {Mode::kSum}; }
  static Output every(int64_t period) { return {Mode::kEvery, period}; }
  bool operator==(const Output&) const = default;
};

/// Gradients and intermediate tensors that some calls of a training return
/// (TrainingModel::watched()). These calls run a program of their own, "watch", with the bits of
/// the other calls. These run the program of a model without a watch, with one exception
/// (`values`). All programs are planned before the first call.
struct Watch {
  /// Patterns of the paths of trained weights, as in Options::freeze. The gradient is the one that
  /// the update reads: reduced over micro-batches and replicas, and after the hook. The factor of
  /// `max_grad_norm` is not applied.
  std::vector<std::string> gradients = {};
  /// Patterns of the names of values: the path of a submodule names the tensor that it returns, and
  /// nn::Builder::watch() names others. A block with a watched value is in no loop over equal
  /// blocks, in all programs. A field that only a watched value reads is a field of each call.
  std::vector<std::string> values = {};
  int64_t every = 1;  ///< Calls `every`, 2·`every`, … of the run, counted from 1.

  bool empty() const { return gradients.empty() && values.empty(); }
  bool operator==(const Watch&) const = default;
};

/// All options of training and inference. A model (model.h) keeps a copy, so that later changes
/// have no effect on it.
struct Options {
  /// Absent: pipelined if blocks name devices (nn::BlockOptions), else resident.
  std::optional<Strategy> strategy = {};
  DeviceRates rates = {};
  int64_t accumulate = 1;         ///< Micro-batches per update.
  int64_t device_iterations = 1;  ///< Updates of a run, or its micro-batches in inference.
  /// Replicas of a model. A program that is built into an Ir has those of the Ir.
  int replicas = 1;
  /// Absent: all for build_training() and inference, final for a TrainingModel.
  std::optional<Output> output = {};
  /// Whether a training program also returns the sums of the losses over a run where fit() needs
  /// them for the mean (Training::loss_sums). A TrainingModel has them. Not an option of files.
  bool loss_sums = false;
  /// Produces the fields of each micro-batch (data/feed_queues.h): element t · R + r to replica r.
  /// A call then takes only the fields that are given once a run. Null: a call takes all fields.
  std::shared_ptr<data::InfeedQueue> infeed = nullptr;
  /// Elements of each replica, 1 to 255, that fit() reads ahead of a training through an infeed of
  /// its own: a thread makes micro-batches of its loader during a call. The bits are those of
  /// arrays. Not with `infeed`. 0: calls take arrays.
  int prefetch = 0;
  /// Takes the results that `output` names, an element for each entry. They must have equally many
  /// entries. A call then does not return these results. Null: a call returns all results.
  std::shared_ptr<data::OutfeedQueue> outfeed = nullptr;
  TensorLocations locations = {};
  /// For models (model.h) and plan_training() (plan/plan.h), which know a session. Other functions
  /// that build programs take kGiven only.
  Offload offload = Offload::kGiven;
  IoMode io_mode = IoMode::kIo;  ///< Mode of the transfers that `locations` causes, and of all
                                 ///< transfers of phases.
  Recompute recompute = {};
  LearningRate learning_rate = {};
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
  /// Patterns of the paths of weights that are frozen, as are those in none of the optimizer's
  /// parameter groups. `*` represents any characters, dots included, as in nn::keys_like():
  /// "embedding.*". A frozen weight has no gradient, no optimizer state and no update, and no share
  /// of `max_grad_norm`. The backward pass ends at the first block with a trained weight. Running
  /// variables are updated.
  std::vector<std::string> freeze = {};
  /// Decay of exponential moving averages (EMA) of trained weights, at least 0 and below 1. After
  /// each update, average = decay·average + (1 − decay)·weight in float32, with the decay rounded
  /// to float32 (ops::accumulate_moving_average_). The first average is the first weight. Averages
  /// are variables with the path "ema.<path of the weight>", in the memory of the optimizer's
  /// state, and sharded as it is. Evaluation and inference read averages in place of weights.
  /// Trained weights must be float32. Absent: without averages.
  std::optional<double> ema_decay = {};
  Watch watch = {};
  /// Seed of the variables' first values and, in a model, of the draws of its runs.
  uint64_t seed = 0;
  /// The session that a model opens: devices and their memory, threads, remote memory, io queues.
  SessionOptions session = {};
};

/// Error{kUsage} "<what> must be …" for a learning rate that is not a finite float32 of at least 0.
void check_learning_rate(std::string_view what, double rate);

/// "sum" or "mean".
std::string_view to_string(ReplicaReduction reduction);

/// Reads "all", "final", "sum" or "every:N". Error{kUsage} for another text.
Output parse_output(std::string_view text);

/// Formats every option as "name=value", a line each. Those that differ from the defaults end with
/// " (changed)".
std::string to_string(const Options& options);

/// Reads options from a JSON file of the names and values of to_string(); the others are those of
/// `defaults`. Names with points may be nested objects:
///
///     {"strategy": "pipelined", "stages": ["B1+B2", "B3"], "accumulate": 10,
///      "locations": {"optimizer": "remote"}, "session": {"device": {"memory": 1000000}}}
///
/// Functions have no form in a file. Error{kIo} if the file cannot be read; Error{kBadFile}, with
/// the option, for another name or value, and for an option that has no effect.
Options read_options(const std::string& path, const Options& defaults = {});

}  // namespace sluice::train
