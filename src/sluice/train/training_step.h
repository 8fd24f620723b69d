#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/nn/update/optimizers.h"
#include "sluice/train/network.h"
#include "sluice/train/options.h"

namespace sluice {
class Session;
}

namespace sluice::train {

struct PipelinePlan;

/// Path of the average of a weight before the path of the weight (Options::ema_decay).
inline constexpr const char* kAveragePrefix = "ema.";

/// A weight and its counterpart in the state_dict of the PyTorch module of the same structure.
struct TorchWeight {
  std::string path;         ///< Key of Training::variables.
  std::string name;         ///< Key of the state_dict.
  bool transposed = false;  ///< PyTorch stores the matrix with its axes exchanged.
};

/// A prediction of a program with its labels (Prediction::labels).
struct Labelled {
  std::string prediction;                    ///< Its stream.
  std::string labels;                        ///< Name of the field.
  std::optional<int64_t> ignore_index = {};  ///< Prediction::ignore_index.
  int64_t classes = 0;                       ///< Number of classes; 0: not known.
  bool regression = false;                   ///< Whether the labels are floating-point targets.
};

/// The stream of a streamed coefficient (nn::streamed): float32, an entry for each update of a run.
struct CoefficientStream {
  nn::StreamedCoefficient coefficient;  ///< With the value that the program was built with.
  H2dStream stream;
};

/// A stream of the program "watch" with gradients of weights (Options::watch).
struct GradientStream {
  D2hStream stream;
  /// Paths of the weights of an update's entries, in their order; empty for a gradient that no
  /// pattern matches.
  std::vector<std::string> weights;
};

/// A stream of the program "watch" with a value of each micro-batch (Options::watch).
struct ValueStream {
  D2hStream stream;
  std::string name;  ///< Name of the value (nn::Builder::watch()).
};

/// The reductions of a training program.
struct GradientReductions {
  Accumulation accumulation = Accumulation::kRunningMean;
  ReplicaReduction replicas = ReplicaReduction::kMean;
  std::map<std::string, DType> accumulators = {};  ///< Dtype by path of each trained weight.
};

/// A program "train" that trains, and a program "eval" that applies the trained weights. With
/// Options::watch, a program "watch" trains as "train" does and writes the watched tensors too. A
/// run of "train" reads `accumulate` entries of each field's stream for each of `device_iterations`
/// updates, in order of micro-batches. It returns one entry of each loss and prediction per
/// micro-batch. A result that is summed has one entry for each update (Writing).
struct Training {
  /// The feed of `fields`, or of `eval_fields` without training, if Options::infeed is given.
  std::optional<Infeed> infeed;
  /// The feed of the losses and predictions, if Options::outfeed is given.
  std::optional<Outfeed> outfeed;
  std::vector<H2dStream> fields;       ///< Fields that training reads, in the network's order.
  std::vector<H2dStream> eval_fields;  ///< Fields that evaluation reads.
  std::vector<H2dStream> inputs;       ///< Fields with Field::once, which have one entry for each
                                       ///< run, except that of the learning rate.
  std::optional<H2dStream> seed;       ///< uint32[2], if the network draws.
  /// Learning rate: float32, if Options::learning_rate is a StreamedRate.
  std::optional<H2dStream> learning_rate;
  int64_t rates_of_run = 1;  ///< Entries of that stream in a run: one for each update, or
                             ///< 1 if it is a field of the network.
  double constant_rate = 0;  ///< Learning rate without that stream.
  std::vector<CoefficientStream> coefficients;  ///< In the order of nn::Optimizer::streamed().
  std::vector<D2hStream> losses;                ///< Written ones, in the order of Results::losses.
  std::vector<double> loss_weights;             ///< Loss::weight of each.
  std::vector<int64_t> loss_micro_batches;  ///< Micro-batches whose sum an entry of each loss is.
  /// Sums over the micro-batches of a run, float32 (Options::loss_sums): of each of `losses` (of
  /// the dividends, if they have a total weight), then of the total weight, if there is one. Empty
  /// if the entries of `losses` define the means of a run.
  std::vector<D2hStream> loss_sums;
  std::vector<D2hStream> predictions;  ///< Streams of the predictions that the program writes.
  std::vector<GradientStream> watched_gradients;
  std::vector<ValueStream> watched_values;
  /// Entries of each result in a run, by stream. Absent: one for each micro-batch.
  std::map<std::string, int64_t> entries;
  std::vector<D2hStream> eval_predictions;  ///< Predictions of "eval".
  std::vector<Labelled> labelled;           ///< Predictions with labels.
  std::vector<Labelled> eval_labelled;      ///< Predictions of "eval" with labels.
  nn::NamedTensors variables;               ///< Weights and running variables by path, in the
                                            ///< training program.
  nn::NamedTensors state;                   ///< Optimizer state: "<path of the variable>.<state>".
  std::vector<TorchWeight> torch_weights;   ///< One for each weight.
  nn::NamedTensors averages;                ///< Averages by path of the weight, if
                                            ///< Options::ema_decay asks for them.
  std::vector<std::string> frozen;  ///< Paths of the weights that are in no parameter group or that
                                    ///< Options::freeze freezes.
  int64_t accumulate = 1;           ///< Micro-batches of an update.
  int64_t device_iterations = 1;    ///< Updates in a run of "train".
  int64_t eval_iterations = 1;      ///< Micro-batches in a run of "eval".
  int replicas = 1;
  int devices = 1;                               ///< Devices of a replica that the stages need.
  std::shared_ptr<const PipelinePlan> pipeline;  ///< Null unless it is sharded or pipelined.
  GradientReductions reductions;                 ///< Unused without training.
  std::string note;  ///< The request that could not be met, and the reason; else empty.
};

/// Adds the entry graphs "train" and "eval" to `ir`. The network is cut into its blocks (cut.h).
/// Gradients are reduced over micro-batches, then over replicas, and pass the hook. Then the
/// optimizer updates every weight. Running variables (nn::Builder::update_running) are updated
/// after each micro-batch and averaged over replicas after the last one. Fixes the number of
/// replicas. Error{kUsage} for the faults that Network::build(), cut() and recompute() name, if
/// `accumulate` or `device_iterations` is below 1, if the optimizer trains no weight, if a
/// parameter group has none, and if no loss depends on a weight that the optimizer trains.
/// Error{kUsage} for a pattern of `freeze` that matches no weight, and if it freezes all.
/// Error{kUsage} for a pattern of `watch` that matches no trained weight, or no value.
/// Error{kUsage} for an accumulator's dtype that is not f32, f16 or bf16, and for a hook's result
/// of another shape or graph, with the weight.
///
/// `inference` has the options of "eval": `device_iterations` micro-batches a run, `output`, and a
/// `strategy` on the stages of the training. Its feeds and its options of gradients and updates
/// have no effect.
///
/// The caller binds `infeed` and `outfeed` to the queues of the options, or to others.
Training build_training(Ir ir, const Network& network, nn::Optimizer optimizer,
                        const Options& options, const Options& inference = {});

/// Adds the entry graph "eval" alone to `ir`. A run reads `options.accumulate` entries of each
/// field's stream and one of each of Training::inputs, and returns one entry of each prediction per
/// micro-batch; with `options.device_iterations`, this is multiplied by it. A pipeline of S stages
/// runs D micro-batches in D + S - 1 iterations. Error{kUsage} as for build_training(), with
/// phases, and for options of gradients and updates.
Training build_inference(Ir ir, const Network& network, const Options& options);

/// Sets the weights of a session on these programs from a safetensors file that holds the
/// state_dict of the PyTorch module of the same structure; dtypes are converted. Optimizer state
/// does not change. Returns the names in the file that match no weight. Error{kBadFile} if a weight
/// is missing or has another shape; then no weight is set. Error{kUsage} if processes read
/// different values.
std::vector<std::string> load_torch_weights(Session& session, const Training& training,
                                            const std::string& path);
/// Writes the weights to such a file. The first process of a group writes it; the others return
/// after it is written. `metadata` is that of the file. Error{kDiverged} if a variable of the
/// training is not finite; then no file is written.
void save_torch_weights(Session& session, const Training& training, const std::string& path,
                        const std::map<std::string, std::string>& metadata = {});

}  // namespace sluice::train
