#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/data/dataset.h"
#include "sluice/nn/update/optimizers.h"
#include "sluice/session/session.h"
#include "sluice/train/checkpoints/run.h"
#include "sluice/train/network.h"
#include "sluice/train/options.h"
#include "sluice/train/training_step.h"

/// Models: a network with its options, which is called with arrays of samples.
///
/// Several threads may call one model, through one handle or through copies. Their calls queue:
/// they run one at a time, in the order in which they came, each on all workers of the session. So
/// n threads get together the calls per second of one, and a call takes as long as those before it
/// and itself. The queue allocates nothing. fit() and evaluate() queue call by call: calls of other
/// threads, such as those that serve an InferenceModel, run between theirs. Two fits of one model
/// run one after the other. For calls at the same time, make several models: each has its own
/// variables and workers (SessionOptions). References that programs(), session() and options()
/// return are valid as long as the model.
///
///     train::Options options{.accumulate = 10, .device_iterations = 10};
///     auto model = train::training_model(network, options, nn::Optimizer::adamw());
///     data::Element results = model({{"input", images}, {"labels", labels}});
///     options.accumulate = 1;
///     auto test = train::inference_model(model, options);
///     data::Element scores = test({{"input", images}});
namespace sluice::train {

struct OffloadDecision;

namespace internal {
class ModelState;
struct ModelAccess;
}  // namespace internal

/// Returns the optimizer of an update, counted from 0, for its streamed coefficients.
using OptimizerFunction = std::function<nn::Optimizer(int64_t update)>;

/// The samples of a call: m samples of a micro-batch, D device iterations, N micro-batches of an
/// update (1 in inference) and R replicas.
struct CallSize {
  int64_t micro_batch = 1;
  int64_t device_iterations = 1;
  int64_t accumulate = 1;
  int64_t replicas = 1;

  int64_t samples() const { return micro_batch * device_iterations * accumulate * replicas; }
  bool operator==(const CallSize&) const = default;
};

/// Formats the factors with their names, the later ones only where they are above 1:
/// "micro-batch 40 x device iterations 10 x accumulate 10 = 4000".
std::string to_string(const CallSize& size);

/// The tensors that Options::watch names, of one call.
struct Watched {
  int64_t calls = 0;    ///< Calls of the run, this one included; 0: none has returned tensors.
  int64_t updates = 0;  ///< Updates of the run after the call.
  /// Gradients by path of the weight, of replica 0. An array has the shape of the weight, after an
  /// axis of the call's updates if there are several.
  data::Element gradients = {};
  /// Values by name, of all micro-batches and replicas, in the form of results (TrainingModel).
  data::Element values = {};
};

/// A network that trains. Copies are handles to one model.
///
/// A call takes m · D · N · R samples and returns the results that Options::output names. Samples
/// are in the order of device iterations, then micro-batches, then replicas. Each array has the
/// samples as first axis. A tuple has the fields of the network in their order; named fields may be
/// in any order, and others are ignored. A field that is given once a run has the shape of its
/// spec. In a result, the first axis of a micro-batch's value is multiplied by the number of
/// entries (Output). A scalar gets an axis of the entries, if there are several.
class TrainingModel {
 public:
  /// Trains on the next samples and returns the losses and predictions by name. The first call
  /// compiles. DoesNotFit, with its figures, if no plan fits (exe/budget/does_not_fit.h).
  /// Error{kUsage} for missing fields, other shapes or dtypes; then no sample is used. Also the
  /// errors of build_training() and Session.
  ///
  /// With Options::infeed, the samples come from that queue, which compile() opens, and `samples`
  /// has only the fields that are given once a run. Error{kUsage} at the end of data; the weights
  /// stay readable. With Options::outfeed, the results go to that queue, also during the call.
  data::Element operator()(const data::Element& samples = {});

  /// Builds and compiles the programs, which the first call does otherwise.
  void compile();
  bool is_compiled() const;
  /// The options that the model was made with.
  const Options& options() const;
  /// Compiles if necessary.
  CallSize call_size();
  /// Number of updates so far, those of a run that was resumed included.
  int64_t updates() const;
  /// Returns the run so far.
  Run run() const;
  /// Continues another run from its counts, position and rate, without its variables.
  void continue_run(const Run& run);

  /// Returns the tensors that the last call with them returned (Options::watch).
  Watched watched() const;

  /// Sets the learning rate of the next calls, a finite float32 of at least 0. It is that of
  /// Options::learning_rate at first; with a StreamedRate, set it before the first call.
  void set_learning_rate(double rate);
  /// Changes the learning rate and the streamed coefficients (nn::streamed) of the next calls
  /// without compiling. Error{kUsage} if `optimizer` has other update rules than the model's, or
  /// another constant, which are compiled into the programs.
  void set_optimizer(const nn::Optimizer& optimizer, double learning_rate);

  /// Save and load the weights, the state of the optimizer and averages (Session::save,
  /// Session::load). Error{kDiverged} for values that are not finite; then no file is written.
  /// Error{kBadFile}, which names load_weights(), if a file has the weights but not the state.
  void save(const std::string& path, const std::map<std::string, std::string>& metadata = {});
  std::vector<std::string> load(const std::string& path);
  LoadResult load(const std::string& path, const LoadOptions& options);
  /// Loads weights, running variables and averages. The state of the optimizer keeps its values. An
  /// average that a file lacks starts as its weight, also in load() without LoadOptions::strict.
  std::vector<std::string> load_weights(const std::string& path);
  LoadResult load_weights(const std::string& path, const LoadOptions& options);
  /// Returns a weight, a running variable or an average ("ema.<path>") by its path. Error{kUsage},
  /// which lists the paths of weights and running variables, if the path does not exist.
  HostTensor weight(std::string_view path);
  /// Returns the plan for users.
  report::Plan plan();
  /// Returns the tensors in remote memory and why they are there (plan/offload.h). Compiles if
  /// necessary.
  const OffloadDecision& offload();
  /// The programs and their session; compile if necessary.
  const Training& programs();
  Session& session();

 private:
  friend struct internal::ModelAccess;
  explicit TrainingModel(std::shared_ptr<internal::ModelState> state) : state_(std::move(state)) {}
  std::shared_ptr<internal::ModelState> state_;
};

/// A network that infers, alone or with the weights of a TrainingModel. A call takes m · D · R
/// samples. Fields that inference does not read are ignored, so the samples of a training may be
/// given.
class InferenceModel {
 public:
  /// Returns the predictions by name. Feeds and errors as for a TrainingModel; a model that reads
  /// the weights of a training reads and returns arrays.
  data::Element operator()(const data::Element& samples = {});

  void compile();
  const Options& options() const;
  CallSize call_size();
  /// Loads the weights, or their averages from a file of TrainingModel::save() that has them. Other
  /// variables are ignored. A model that reads the weights of a training loads those of it.
  std::vector<std::string> load(const std::string& path);
  LoadResult load(const std::string& path, const LoadOptions& options);
  report::Plan plan();
  /// As of a TrainingModel.
  const OffloadDecision& offload();
  const Training& programs();
  Session& session();

 private:
  friend struct internal::ModelAccess;
  explicit InferenceModel(std::shared_ptr<internal::ModelState> state) : state_(std::move(state)) {}
  std::shared_ptr<internal::ModelState> state_;
};

/// Makes a model that trains `network`. Nothing is compiled yet.
TrainingModel training_model(const Network& network, const Options& options,
                             nn::Optimizer optimizer = nn::Optimizer::sgd());

/// Makes a model of programs that build_training() added to `ir` for `network` with `options`. A
/// rate that is a number is a constant of the programs.
TrainingModel training_model(const Network& network, const Options& options, const Ir& ir,
                             const Training& programs);

/// Makes a model that infers one micro-batch a call with the weights of `training`, without a copy
/// of them: it is a program of the same session. If `training` was made of programs that exist, it
/// runs their "eval".
InferenceModel inference_model(const TrainingModel& training);

/// As above, with options: any number of models, made at any time, each with its own micro-batches,
/// outputs, replicas and stages. `options` may be a copy of the training's options: feeds and
/// options of gradients and updates have no effect.
///
/// The first model that is made before `training` compiles, with its replicas, is a program of the
/// same session too. Every other one has a session of its own, which compiles at its first call
/// after that of the training, and a copy of the weights. A call copies them if they have changed
/// since the last one; the model that trains may be called meanwhile. Calls of these models run at
/// the same time as those of the training.
///
/// The budgets of the training's options are for all of them: a model gets what the others leave.
/// Error{kDoesNotFit} from compile() or the first call, before memory is allocated, if that is not
/// enough; the training then continues. Error{kUsage} unless `accumulate` is 1. Also the errors of
/// build_inference(), which has no phases.
InferenceModel inference_model(const TrainingModel& training, const Options& options);

/// Makes a model that infers with weights of its own: random ones, or those of a file.
InferenceModel inference_model(const Network& network, const Options& options);

/// Makes a model of programs that build_inference() added to `ir` for `network`. A run of them has
/// `options.device_iterations` micro-batches.
InferenceModel inference_model(const Network& network, const Options& options, const Ir& ir,
                               const Training& programs);

/// Returns the percentage of rows of `predictions` (n, classes) whose largest score is at their
/// label. The first NaN of a row counts as its largest score, as in ops::argmax(). The labels are
/// the last n of `labels`, so that results of the last micro-batch may be compared with the labels
/// of a whole call. Error{kUsage} for other shapes, or with fewer labels.
double accuracy(const HostTensor& predictions, const HostTensor& labels);

}  // namespace sluice::train
