#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "sluice/session/session.h"
#include "sluice/train/learning_rate.h"
#include "sluice/train/training_step.h"

namespace sluice::data {
struct Samples;
}  // namespace sluice::data

namespace sluice::train {

struct StepArrays;

/// The results of a run of the training program: of one step, or of StepOptions::repeat steps. The
/// arrays are those of the run until fit() begins the next one.
class StepReport {
 public:
  StepReport(const Training& training, const StepArrays& arrays)
      : training_(training), arrays_(arrays) {}

  int64_t done = 0;                ///< Steps done in this call of fit().
  double loss = 0;                 ///< Mean of FitResult::losses over the run.
  std::optional<double> accuracy;  ///< As FitResult::accuracy.

  /// Return a loss (not multiplied by its weight) or prediction with the micro-batches and replicas
  /// of the run as first axes. Error{kUsage}, which lists the names, if there is none of the name.
  const HostTensor& loss_of(std::string_view name) const;
  const HostTensor& prediction(std::string_view name) const;

 private:
  const Training& training_;
  const StepArrays& arrays_;
};

struct FitOptions {
  int64_t epochs = 1;
  /// Number of steps, instead of `epochs`. A multiple of StepOptions::repeat.
  std::optional<int64_t> steps = {};
  uint64_t seed = 0;  ///< Seed of the samples' order and of the blocks' draws.
  /// The rates of the steps, for a program that streams its rate (StreamedRate), else absent. All
  /// steps of a run have the rate of its first one.
  std::optional<LearningRateSchedule> schedule = {};
  /// Number of steps after which the replicas' copies of all variables are compared, again and
  /// again. Absent: never.
  std::optional<int64_t> check_replicas = {};
  /// Called after each run. The training stops if it returns false.
  std::function<bool(const StepReport& step)> after_step = nullptr;
};

/// Length of a training.
struct FitLength {
  int64_t samples_per_step = 0;
  int64_t steps_per_epoch = 0;
  int64_t dropped = 0;  ///< Samples that each epoch drops because they do not fill a run.
  int64_t steps = 0;    ///< Steps in all.
};

struct FitResult {
  int64_t steps = 0;  ///< Steps that ran.
  double loss = 0;    ///< Mean over the last run.
  /// Loss of every micro-batch, replica by replica. Of several losses, the sum with their weights.
  std::vector<float> losses;
  /// The values of each loss by themselves, in the order of `losses` and of Training::losses. Empty
  /// if there is one loss.
  std::vector<std::vector<float>> parts;
  /// Percentage of the samples of the last run whose largest score was that of their class. The
  /// scores are the first prediction that is f32 of shape (samples, classes). Absent if training
  /// returns no such prediction, or if no step ran.
  std::optional<double> accuracy;
  double seconds = 0;
  bool stopped = false;  ///< Whether FitOptions::after_step ended the training.
};

/// Trains a model on labelled samples and tests it. Owns the session of the programs "train" and
/// "eval"; fit() and evaluate() own the loader and the arrays of their steps.
class Trainer {
 public:
  /// Builds the programs of `network` for `replicas` replicas and opens a session on them, with
  /// devices by with_devices(); with Schedule::kAuto, activations keep within their
  /// budgets. Errors are those of build_training() and of Session.
  Trainer(const Network& network, nn::Optimizer optimizer, const StepOptions& step,
          const SessionOptions& session = {}, int replicas = 1);
  /// Opens a session on programs that build_training() added to `ir`, with devices as above.
  Trainer(const Ir& ir, Training training, const SessionOptions& session = {});

  /// Trains on `samples`: images for the network's first field, and their classes, or the targets
  /// of a regression, for its second. The arrays have the dtypes of the fields.
  /// The order of the samples is that of data::DataLoader. A call continues where the last one
  /// ended: two calls on the same samples have the bits of one call with the steps of both.
  /// Error{kDiverged} if a loss is not finite, or if FitOptions::check_replicas finds that replicas
  /// hold different copies of a variable (Session::find_replica_difference). Error{kUsage} if
  /// `samples` do not fill one run or do not match the fields, if there are not two fields, or if
  /// a loss is not f32. Error{kUsage} also if a schedule is given to a program without a rate
  /// stream or is missing, or if check_replicas is below 1.
  FitResult fit(const data::Samples& samples, const FitOptions& options = {});
  /// Returns the length that fit() would have. Error{kUsage} if `samples` do not fill one run, if
  /// `epochs` or `steps` is negative, or if `steps` are not whole runs.
  FitLength length(const data::Samples& samples, const FitOptions& options) const;

  /// Returns the percentage of `samples` whose largest logit is that of their class. Calls
  /// `after_batch` after each batch with the number of batches done. The last batch is filled with
  /// the first samples again, which do not count twice. The logits are the first prediction that is
  /// f32 of shape (samples, classes). Error{kUsage} if there is none, if evaluation reads other
  /// fields than images, if there are no samples, if labels are no classes, or if samples do not
  /// match the model's input.
  double evaluate(const data::Samples& samples,
                  const std::function<void(int64_t done)>& after_batch = nullptr);
  /// Samples of a batch of evaluate(), over all replicas.
  int64_t eval_samples() const;

  Session& session() { return session_; }
  const Session& session() const { return session_; }
  const Training& training() const { return training_; }

 private:
  FitResult fit_steps(const data::Samples& samples, const FitOptions& options);

  Ir ir_;
  Training training_;
  Session session_;
  int64_t updates_ = 0;  ///< Steps of all calls of fit().
};

}  // namespace sluice::train
