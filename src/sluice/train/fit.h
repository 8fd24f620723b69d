#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/data/loader.h"
#include "sluice/report/summary.h"
#include "sluice/train/model.h"

namespace sluice::train {

class Checkpoints;

struct DataLoaderOptions {
  int64_t batch_size = 1;                      ///< Samples of a micro-batch.
  data::Shuffle shuffle = data::Shuffle::kNo;  ///< Whether each epoch has an order of its own.
  int workers = 0;                             ///< Threads that make items; 0: the caller's.
  /// Whether the last samples of an epoch are dropped if they do not fill a call. evaluate() takes
  /// kKeep, too.
  data::Remainder remainder = data::Remainder::kDrop;
  int depth = 3;      ///< Items in memory with workers; the caller holds one of them.
  uint64_t seed = 0;  ///< Seed of the order.
};

/// Cuts a dataset into items for calls of a model: an item has batch_size · device_iterations ·
/// accumulate · replicas samples (data::BatchLoader).
class DataLoader : public data::BatchLoader {
 public:
  /// Error{kUsage} "0 full batches: micro-batch 4 x accumulate 10 = 40, the dataset has 9" if the
  /// samples do not fill an item; also the errors of data::BatchLoader.
  DataLoader(const Options& options, data::Dataset dataset, const DataLoaderOptions& loader = {});

  /// Starts at the item that the run of a model reads next, as fit() does: a loop by hand calls it
  /// before the first item and after the last item of each epoch. Error{kUsage}, naming what
  /// differs, if the run was resumed (train/checkpoints/checkpoints.h) and had other data.
  void start_at(const TrainingModel& model);

  /// The samples of an item.
  const CallSize& call_size() const { return size_; }

 private:
  CallSize size_;
};

/// The results of a call of a TrainingModel.
class CallReport {
 public:
  int64_t call = 0;            ///< Calls done in this run of fit().
  int64_t calls_of_epoch = 0;  ///< Calls of an epoch.
  bool watched = false;        ///< Whether TrainingModel::watched() has tensors of the call.
  /// Mean of the losses over all micro-batches of the call, whatever Output names. They count by
  /// their total weights (Loss::total_weight), if there is one. Of several losses, the sum with
  /// their weights. For programs without Options::loss_sums: the mean of those that are returned.
  double loss = 0;
  /// Percentage of correct predictions among those returned of the first prediction with labels
  /// (Prediction::labels); absent if there is none.
  std::optional<double> accuracy;
  std::span<const float> losses;  ///< Weighted sums of the losses, by entry.

  /// Returns a loss or prediction as the program writes it: entries, replicas, axes of the value.
  /// Error{kUsage}, which lists the names, if the name does not exist.
  const HostTensor& result(std::string_view name) const;

 private:
  friend class Fit;
  const std::vector<std::string>* names_ = nullptr;
  const std::vector<HostTensor>* arrays_ = nullptr;
};

/// A measure of a model on a dataset.
struct Metric {
  enum class Better : uint8_t { kLower, kHigher };

  std::string name;
  double value = 0;
  Better better = Better::kLower;  ///< Whether lower or higher values are better.
  bool percent = false;            ///< Whether the value is a percentage.

  /// Whether the value is better than another one of this metric. NaN is the worst value.
  bool is_better_than(double other) const;
};

/// The result of evaluate().
struct Evaluation {
  int64_t samples = 0;  ///< Samples whose predictions were returned.
  int64_t dropped = 0;  ///< Samples of the dataset that were not.
  /// The metrics that the network and the dataset define, in this order:
  ///
  ///     loss                 sum of all losses with their weights (Loss::weight)
  ///     perplexity           e to the loss; for losses with Loss::mean_cross_entropy
  ///     accuracy             percentage of labels that a prediction predicts (Prediction::labels)
  ///     top5_accuracy        percentage of labels with one of the 5 largest scores of a row; for
  ///                          predictions with more than 5 scores a row
  ///     mean_absolute_error  for predictions with floating-point labels
  ///     mean_squared_error   for predictions with floating-point labels
  ///
  /// If several losses or predictions have a metric, it is that of the first one; "accuracy/NAME"
  /// and so on are those of each. The losses are those that build() returns in evaluation
  /// (Inputs::wants_losses): means over the samples, where a micro-batch counts by its samples or
  /// by its total weight (Loss::total_weight). They are computed from the predictions and the
  /// fields of the dataset; other losses are left out, and then "loss" is, too. Ignored labels do
  /// not count. A metric without a label that counts is left out. Of equal scores, the first one is
  /// the larger one; NaN is larger than each number.
  std::vector<Metric> metrics = {};
  int64_t updates = 0;  ///< Updates of the training before it, for a validation of fit().
  double seconds = 0;

  /// Returns the value of a metric; absent without this metric.
  std::optional<double> operator[](std::string_view name) const;
  /// Returns a metric. Error{kUsage}, which lists the names, without this metric.
  const Metric& metric(std::string_view name) const;
};

/// Formats it as "Accuracy on test set: 98.41% (9600 samples, 400 dropped)", several accuracies as
/// "… 97.20% (a) and 50.00% (b) …". Without one: "Loss on test set: 0.0312 (…)".
std::string to_string(const Evaluation& evaluation);

/// The progress that a function reports on stderr.
enum class Show : uint8_t {
  kNo,        ///< Nothing.
  kProgress,  ///< Epochs, with a bar of the calls.
  kAll,       ///< Also the samples of a call and the time to compile.
};

struct FitOptions {
  int64_t epochs = 1;
  std::optional<int64_t> calls = {};  ///< Calls in all, instead of `epochs`.
  /// Rates of the updates. Absent: the model's own rate. Decay::kPlateau observes the loss of each
  /// validation, or its accuracy with Plateau::Mode::kMax; its state belongs to the model.
  std::optional<LearningRateSchedule> schedule = {};
  /// Streamed coefficients of each update (nn::streamed), for example a momentum that follows the
  /// learning rate. Error{kUsage} for an optimizer with another program, as for
  /// TrainingModel::set_optimizer(). Null: those of the model.
  OptimizerFunction optimizer = nullptr;
  /// Model and data of validations: one after each `validate_every` updates, or at the end of each
  /// epoch.
  InferenceModel* validation_model = nullptr;
  DataLoader* validation_data = nullptr;
  int64_t validate_every = 0;  ///< Updates between validations; 0: an epoch.
  /// Validations without a better value of `metric` after which the training ends; 0: no limit. The
  /// count belongs to the run: a run that it has ended makes no more calls.
  int64_t patience = 0;
  /// File for the weights and state of the best validation so far. At the end of the training the
  /// model gets them back, unless `after_call` ended it. Empty: none.
  std::string save_best = {};
  /// Metric that `patience` and `save_best` compare, by its name in Evaluation. Empty: the first
  /// one.
  std::string metric = {};
  /// The replicas' copies of all variables are compared each time after this number of updates.
  /// Absent: never.
  std::optional<int64_t> check_replicas = {};
  /// Saves checkpoints of the model after calls, as its options ask, and at the end.
  Checkpoints* checkpoints = nullptr;
  std::string save = {};   ///< File for weights and state after each `save_every` calls.
  int64_t save_every = 0;  ///< 0: at the end of each epoch.
  /// Folder for an event file of TensorBoard and metrics.csv (docs/howto/watch_a_training.md). The
  /// first process of a group writes them. If the folder has the log of another run, they go to a
  /// folder of their own in it, run-2 and so on; a model continues with its own log. Tensors of
  /// Options::watch are files of the log, watched/<update>.safetensors, and events. Empty: none.
  std::string log_dir = {};
  /// Updates between histograms of each weight in the event file; 0: none.
  int64_t log_histograms = 0;
  /// Called after each call, before its validation and checkpoint. The training stops if it returns
  /// false.
  std::function<bool(const CallReport& report)> after_call = nullptr;
  Show show = Show::kNo;
};

struct FitResult {
  int64_t calls = 0;
  int64_t updates = 0;  ///< Updates of these calls.
  double loss = 0;      ///< As CallReport::loss, of the last call.
  /// Losses that the calls returned, by entry and replica. Of several losses, the sum with their
  /// weights.
  std::vector<float> losses;
  /// The values of each loss by themselves, in the order of Training::losses. Empty if there is one
  /// loss.
  std::vector<std::vector<float>> parts;
  std::optional<double> accuracy;       ///< As CallReport::accuracy, of the last call.
  std::vector<Evaluation> validations;  ///< In the order of their updates.
  BestValidation best = {};             ///< Best one of the run, with `patience` or `save_best`.
  bool stopped_early = false;           ///< Whether `patience` ended the training.
  double seconds = 0;                   ///< Without compiling.
  bool stopped = false;                 ///< Whether `after_call` ended the training.
  std::string log_dir;                  ///< Folder of the log, in the process that writes it.
};

/// Trains a model on the items of a loader. Two calls of fit() have the order and the bits of one
/// call that is as long as both: each begins at the position of TrainingModel::run(), also of a run
/// that was resumed (checkpoints/checkpoints.h). The accuracy is that of the first prediction with
/// labels (Prediction::labels). With Options::prefetch, a thread reads the samples ahead with a
/// loader of its own, and `data` stays where it is.
///
/// Error{kDiverged} if a loss is not finite, if a variable is not finite after the last update or
/// before a save, or if replicas hold different copies of a variable (`check_replicas`).
/// Error{kUsage} if the loader's items are not those of the model's calls, if the model has a queue
/// (Options::infeed, Options::outfeed), if an option is out of range, or if a loss that is returned
/// is not f32. Error{kIo} if `log_dir` cannot be written at first; if that fails later, one warning
/// is printed and the training continues.
FitResult fit(TrainingModel& model, DataLoader& data, const FitOptions& options = {});
/// As above, on items of a dataset. Each epoch has its own order, which depends on Options::seed. A
/// dataset without an end keeps its order and requires FitOptions::calls.
FitResult fit(TrainingModel& model, const data::Dataset& dataset, const FitOptions& options = {});

/// Compares the predictions for all items of an epoch with their labels, and computes the losses.
/// Counts are exact; means over calls are sums in double. A smaller last item (Remainder::kKeep) is
/// completed with its own samples, which do not count twice. If the model returns the last
/// micro-batch only, only the samples of that micro-batch count. Calls `after_call` after each call
/// of the model. Error{kDiverged} for a loss, an element of a prediction's row or a floating-point
/// label that is NaN, with its row.
Evaluation evaluate(InferenceModel& model, DataLoader& data, Show show = Show::kNo,
                    const std::function<void()>& after_call = nullptr);
/// As above, on all samples of a dataset.
Evaluation evaluate(InferenceModel& model, const data::Dataset& dataset, Show show = Show::kNo,
                    const std::function<void()>& after_call = nullptr);

/// Returns the predictions for all samples of a dataset, in its order: by name, arrays with a row
/// for each sample. Predictions without such rows are left out. Calls `after_call` after each call
/// of the model. Error{kDiverged} for an element of a row that is NaN, with the row. Error{kUsage}
/// if all are left out, if the model does not return each micro-batch (Output::all()), or if the
/// dataset does not end.
data::Element predict(InferenceModel& model, const data::Dataset& dataset, Show show = Show::kNo,
                      const std::function<void()>& after_call = nullptr);

/// Speed of a program.
struct Throughput {
  double mean_seconds = 0;  ///< Mean time of one run in seconds.
  double samples_per_second = 0;
};

/// Runs a program `runs` times on arrays of ones and measures the time. `samples_per_step` is the
/// number of samples in one run. Variables keep their values: they are copied to host memory first
/// and restored at the end. Error{kUsage} if `samples_per_step` or `runs` is below 1, or if the
/// program does not exist.
Throughput evaluate_throughput(Session& session, int64_t samples_per_step, int runs = 5,
                               const std::string& program = "main");

/// Formats it as "Mean duration: 0.00125 s Throughput: 6400.0 samples/s ".
std::string to_string(const Throughput& throughput);

/// Results of infeed_benchmark().
struct InfeedBenchmark : data::BenchmarkResult {
  report::FeedReport feed = {};  ///< Rate of the queue alone, and who waited for whom.
};

/// Measures how fast a program gets elements from `queue`: each run of a program without ops loads
/// one of its infeed on the default device. The results begin with those of
/// data::dataset_benchmark(); `copy` must be true. Error{kUsage} also if a feed uses the queue.
InfeedBenchmark infeed_benchmark(data::InfeedQueue& queue,
                                 const data::BenchmarkOptions& options = {});

}  // namespace sluice::train
