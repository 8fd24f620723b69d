#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/hash.h"
#include "sluice/session/call_queue.h"
#include "sluice/train/checkpoints/manifest.h"
#include "sluice/train/model.h"
#include "sluice/train/plan/offload.h"
#include "sluice/train/plan/plan.h"
#include "sluice/train/run/finite.h"

namespace sluice::train::internal {

/// Returns the shape of a result of several entries: the first axis of an entry is multiplied; a
/// scalar gets an axis of the entries, if there are several.
Shape joined(const Shape& entry, int64_t entries);

/// The programs of a model and their session.
struct ModelPrograms {
  ModelPrograms(const Network& network, const std::optional<nn::Optimizer>& optimizer,
                const Options& options, const std::optional<Options>& inference);
  explicit ModelPrograms(PlannedPrograms planned);

  Ir ir;
  Session session;
  Training training;
  OffloadDecision offload;
};

/// Calls of one program of a model: checks samples, binds arrays and holds the results.
class ModelCalls {
 public:
  enum class Use : uint8_t { kTrain, kInfer };

  /// `options` are those of this use.
  ModelCalls(ModelPrograms& programs, const Network& network, Use use, const Options& options);

  /// Runs the program on samples. A run of training begins with update `update` and has a learning
  /// rate for each of its updates. With `watches`, it runs the program "watch" instead.
  void run(const data::Element& samples, std::span<const double> rates, int64_t update,
           bool watches = false);
  /// Returns copies of the watched tensors of the last such run, without its counts.
  Watched watched() const;
  /// Sets the values of Training::coefficients: of each, one for each update of the next calls, or
  /// one for all.
  void set_coefficients(const std::vector<std::vector<double>>& values);
  /// Returns copies of the results that `options.output` names.
  data::Element results() const;
  /// Returns the arrays of all results as the program writes them: entries, replicas, and the axes
  /// of a micro-batch's value.
  const std::vector<HostTensor>& arrays() const { return arrays_; }
  const std::vector<std::string>& names() const { return names_; }
  /// Returns the arrays of Training::loss_sums, an element for each replica.
  const std::vector<HostTensor>& loss_sums() const { return loss_sums_; }
  const CallSize& size() const { return size_; }
  /// Entries of all replicas that `options.output` names among those of a result that the program
  /// writes: the last `kept` of each `period`.
  struct Taken {
    int64_t period = 1;
    int64_t kept = 1;
  };
  Taken taken(int64_t written) const;

  struct Field {
    H2dStream stream;
    std::string name;     ///< Name in the network.
    int64_t entries = 1;  ///< In a run.
    size_t index = 0;     ///< Index in a tuple, as in the network.
  };
  /// Returns the fields of a call.
  const std::vector<Field>& fields() const { return fields_; }
  /// Returns the array of a field among samples; null if there is none.
  static const HostTensor* find(const data::Element& samples, const Field& field);

  /// A prediction with labels.
  struct LabelledResult {
    size_t index = 0;  ///< Among the results.
    Field labels;
    std::optional<int64_t> ignore_index = {};  ///< Prediction::ignore_index.
    bool regression = false;                   ///< Labelled::regression.
  };
  /// Whether the results of a call are those of its last samples.
  bool returns_last() const;
  /// Error{kUsage} unless an item of a loader has the samples of a call.
  void check_items(const char* caller, const CallSize& item) const;
  /// Returns the predictions with labels, in the order of the results. Empty unless
  /// returns_last().
  const std::vector<LabelledResult>& labelled() const { return labelled_; }
  /// Returns the array of labels among samples; null if there is none. Error{kUsage} unless the
  /// array is int32.
  const HostTensor* labels(const data::Element& samples, const Field& field) const;
  /// As above, of a prediction. Error{kUsage} unless the array is int32, or floating-point in a
  /// regression.
  const HostTensor* labels(const data::Element& samples, const LabelledResult& result) const;
  /// As above, of the first prediction with int32 labels, in this program or else in the other one
  /// of the model.
  const HostTensor* labels(const data::Element& samples) const;
  /// Returns all labels among samples whose number of classes is known, of predictions of both
  /// programs of the model.
  std::vector<ClassLabels> class_labels(const data::Element& samples) const;

 private:
  Field field_of(const Network& network, const std::string& name) const;
  void find_labels(const Network& network);
  void check_fed(const data::Element& samples) const;
  ConstArrayView view(const data::Element& samples, const Field& field) const;
  Binding bind(const std::vector<ConstArrayView>& fields, bool watches);
  HostTensor selected(const HostTensor& array, const TensorSpec& entry) const;

  ModelPrograms& programs_;
  Use use_;
  uint64_t seed_;
  Output output_;
  std::string program_;
  CallSize size_;
  std::vector<Field> fields_;
  std::vector<std::string> fed_;  ///< Names of the fields of an infeed.
  std::vector<D2hStream> results_;
  std::vector<std::string> names_;
  std::vector<HostTensor> arrays_;
  std::vector<HostTensor> loss_sums_;
  std::vector<LabelledResult> labelled_;
  std::optional<Field> labels_;                    ///< The first labels, also of the other program.
  std::vector<std::pair<Field, Labelled>> known_;  ///< Labels of both programs.
  HostTensor seeds_;
  HostTensor rates_;
  std::vector<HostTensor> coefficients_;  ///< One for each of Training::coefficients.
  std::vector<HostTensor> gradients_;     ///< One for each of Training::watched_gradients.
  std::vector<HostTensor> values_;        ///< One for each of Training::watched_values.
  /// A program and the addresses of the samples that it read.
  using Bound = std::pair<bool, std::vector<const std::byte*>>;
  std::vector<std::pair<Bound, Binding>> bindings_;  ///< Earlier calls; the newest is last.
};

/// The state that all handles of a model share. Each function but the getters of options holds the
/// queue of calls.
class ModelState {
 public:
  /// Hold the queue of calls, or that of fits. A thread that locks both locks that of fits first.
  std::unique_lock<CallQueue> next_call() const { return std::unique_lock(calls_); }
  std::unique_lock<CallQueue> next_fit() const { return std::unique_lock(fits_); }

  /// Without an optimizer, the model infers alone.
  ModelState(Network network, Options options, std::optional<nn::Optimizer> optimizer);
  /// The model infers with the weights of `training`, in a separate session. It has a copy of the
  /// weights, which it brings up to date before a call.
  ModelState(std::shared_ptr<ModelState> training, Options options);
  ~ModelState();
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;
  /// Opens a session on programs that exist.
  ModelState(ModelCalls::Use use, Network network, PlannedPrograms planned);

  void compile();
  bool is_compiled() const;
  ModelPrograms& programs();
  ModelCalls& calls(ModelCalls::Use use);
  /// Runs a call that trains. The updates have the rates of `schedule`, or all the rate() of the
  /// model if it is null. rate() is then that of the last update. Their coefficients are those of
  /// `optimizers`, or all those of the model if it is null. The results may be read while the
  /// caller holds the queue.
  const ModelCalls& train(const data::Element& samples,
                          const LearningRateSchedule* schedule = nullptr,
                          const OptimizerFunction& optimizers = nullptr);
  /// Returns copies of the results of a call.
  data::Element infer(const data::Element& samples);

  const Options& options() const { return options_; }
  const Options& inference_options() const { return trains_ ? inference_ : options_; }
  int64_t updates() const;
  /// Returns the run so far, with its options.
  Run run() const;
  /// Gives the run an id unless it has one. Each process of a group makes the call.
  void name_run();
  /// Returns the metadata of files of this model's variables.
  std::map<std::string, std::string> save_metadata() const;
  /// Continues a run: counts, position, rate and losses are those of `run`. place_run() compares
  /// the data, unless `any_data`.
  void continue_run(const Run& run, bool any_data);
  /// The order of the data that place_run() must compare; absent: none.
  const std::optional<DataOrder>& expected_data() const { return expected_data_; }
  /// Sets the data of the run, and its position: `item` of `epoch`, of items of `batch` samples.
  void set_position(DataOrder data, int64_t epoch, int64_t item, int64_t batch);
  /// Ends an epoch of data of unknown length.
  void end_epoch();
  /// Adds a loss that a call returned: the weighted sum and its parts.
  void add_loss(float sum, std::span<const float> parts);
  Watched watched() const;
  /// Whether the last call returned watched tensors. The caller holds the queue.
  bool has_just_watched() const { return watched_.calls > 0 && watched_.calls == run_.calls; }
  std::optional<double> rate() const;
  const Network& network() const { return network_; }
  /// Name of the log of this model's trainings in `folder` (Run::log); empty before the first one,
  /// unless a run that was resumed has one.
  std::string log_in(const std::string& folder) const;
  void set_log(const std::string& folder, const std::string& name);
  /// Makes inference a program of the training's session, with these options. Returns false if it
  /// must have a session of its own: it has such a program already, its programs exist, or
  /// `options` has other replicas.
  bool add_inference(const Options& options);
  /// The training whose weights the model reads; null for one with weights of its own.
  ModelState* training() const { return training_.get(); }
  /// The state of a schedule that reduces the rate on plateaus.
  PlateauState& plateau() { return run_.plateau; }
  BestValidation& best() { return run_.best; }
  /// The file with the best weights in the checkpoint that was resumed, by its path; absent: none.
  const std::optional<CheckpointFile>& resumed_best() const { return resumed_best_; }
  void set_resumed_best(std::optional<CheckpointFile> file) { resumed_best_ = std::move(file); }
  void set_learning_rate(double rate);
  void set_optimizer(const nn::Optimizer& optimizer, double rate);

 private:
  /// Returns the values of streamed coefficients. Error{kUsage} "<caller>: …" for an optimizer with
  /// another program than that of the model.
  std::vector<double> coefficients_of(const char* caller, const nn::Optimizer& optimizer) const;
  /// Sets the coefficients of the updates of the next call.
  void set_coefficients(ModelCalls& calls, const OptimizerFunction& optimizers);
  void open(std::unique_ptr<ModelPrograms> programs);
  void open_inference_session();
  void copy_weights();
  SessionOptions with_remaining_budgets(SessionOptions session) const;

  mutable CallQueue fits_;
  mutable CallQueue calls_;
  /// A thread that holds the queue of calls of a model may lock that of its training.
  const std::shared_ptr<ModelState> training_;
  const Network network_;
  const Options options_;
  const bool trains_;
  std::optional<nn::Optimizer> optimizer_;  ///< Absent if the programs were built by others.
  Options inference_;                       ///< Options of inference in the training's session.
  bool has_inference_ = false;              ///< add_inference() returned true.
  /// Bytes that inference models of this training hold, keyed by device; kRemote: remote memory.
  std::map<int, int64_t> inference_bytes_;
  std::optional<uint64_t> copied_;  ///< Session::variable_changes() of the weights copied last.
  std::optional<double> rate_;
  std::vector<double> rates_;  ///< Indexed by update of a call.
  Run run_;                    ///< Without `options`, `seed`, `learning_rate` and `losses_hash`.
  Hash128 losses_hash_;        ///< Run::losses_hash.
  Watched watched_;            ///< Counts of the last call with watched tensors.
  std::vector<float> loss_words_;  ///< The last hash, the loss and its parts, which are hashed.
  std::optional<DataOrder> expected_data_;
  std::map<std::string, std::string> logs_;  ///< Names of logs by folder.
  std::string resumed_log_;                  ///< Name of the log of a run that was resumed.
  std::optional<CheckpointFile> resumed_best_;
  std::unique_ptr<ModelPrograms> programs_;
  std::optional<ModelCalls> train_;
  std::optional<ModelCalls> infer_;
};

/// Lets functions of this layer reach the state of a model.
struct ModelAccess {
  template <typename Model>
  static ModelState& state(const Model& model) {
    return *model.state_;
  }
  template <typename Model>
  static const std::shared_ptr<ModelState>& shared(const Model& model) {
    return model.state_;
  }
  template <typename Model>
  static Model make(std::shared_ptr<ModelState> state) {
    return Model(std::move(state));
  }
};

}  // namespace sluice::train::internal
