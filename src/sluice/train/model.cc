#include "sluice/train/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sluice/base/checked.h"
#include "sluice/base/numbers/slices.h"
#include "sluice/data/feed_queues.h"
#include "sluice/report/summary.h"
#include "sluice/train/devices.h"
#include "sluice/train/metrics/label_counts.h"
#include "sluice/train/model_state.h"
#include "sluice/train/pipeline/pipeline_report.h"
#include "sluice/train/run/finite.h"
#include "sluice/train/run/load_weights.h"
#include "sluice/train/step_arrays.h"

namespace sluice::train {
namespace internal {
namespace {

constexpr size_t kMaxBindings = 16;  // More than a loader has items in memory.
// The options of the training program. Its rate is a stream, so that it can change.
Options for_training(Options options) {
  if (!std::holds_alternative<StreamedRate>(options.learning_rate))
    options.learning_rate = StreamedRate{};
  options.output = options.output.value_or(Output::final());
  return options;
}

PlannedPrograms plan_for(const Network& network, const std::optional<nn::Optimizer>& optimizer,
                         const Options& options, const std::optional<Options>& inference) {
  if (!optimizer) return plan_inference(network, options);
  return plan_training(network, *optimizer, for_training(options), inference.value_or(Options()));
}

// Programs that were built by others, which the session compiles.
PlannedPrograms programs_of(const Ir& ir, const Training& training, const Options& options) {
  require(options.offload == Offload::kGiven,
          "model: offload must be given for programs that exist, got automatic; give the programs "
          "of plan_training()");
  return {ir, training, options, {.locations = options.locations}, nullptr};
}

std::string without_prefix(const std::string& name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

}  // namespace

Shape joined(const Shape& entry, int64_t entries) {
  if (entry.rank() == 0) return entries == 1 ? Shape() : Shape({entries});
  std::vector<int64_t> dims = entry.dims();
  dims[0] = checked_mul(dims[0], entries);
  return Shape(std::move(dims));
}

ModelPrograms::ModelPrograms(const Network& network, const std::optional<nn::Optimizer>& optimizer,
                             const Options& options, const std::optional<Options>& inference)
    : ModelPrograms(plan_for(network, optimizer, options, inference)) {}

ModelPrograms::ModelPrograms(PlannedPrograms planned)
    : ir(planned.ir),
      session(open_session(planned)),
      training(std::move(planned.training)),
      offload(std::move(planned.offload)) {
  if (training.pipeline) session.add_to_report(pipeline_report(training));
}

ModelCalls::ModelCalls(ModelPrograms& programs, const Network& network, Use use,
                       const Options& options)
    : programs_(programs),
      use_(use),
      seed_(options.seed),
      output_(options.output.value_or(use == Use::kTrain ? Output::final() : Output::all())),
      program_(use == Use::kTrain ? "train" : "eval") {
  const Training& t = programs.training;
  const bool trains = use == Use::kTrain;
  const bool alone = !trains && t.fields.empty();
  size_ = {1, options.device_iterations, trains ? options.accumulate : 1, t.replicas};
  const std::string prefix = trains || alone ? "" : "eval_";
  const bool has_feeds = trains || alone;
  const auto add = [&](const H2dStream& stream) {
    fields_.push_back(field_of(network, without_prefix(stream.name, prefix)));
    fields_.back().stream = stream;
  };
  std::vector<TensorSpec> batched;
  if (has_feeds && t.infeed) {
    for (const FeedField& f : t.infeed->fields) {
      fed_.push_back(f.name);
      batched.push_back(f.spec);
    }
  } else {
    for (const H2dStream& s : trains ? t.fields : t.eval_fields) add(s);
    for (const Field& f : fields_) {
      if (f.index != SIZE_MAX) batched.push_back(f.stream.spec);
    }
  }
  if (has_feeds) {
    for (const H2dStream& s : t.inputs) add(s);
  }
  std::erase_if(batched, [](const TensorSpec& spec) { return spec.shape.rank() == 0; });
  if (!batched.empty()) size_.micro_batch = batched[0].shape[0];
  const auto add_result = [&](const D2hStream& s, std::string name) {
    results_.push_back(s);
    names_.push_back(std::move(name));
    arrays_.emplace_back(TensorSpec{
        entries_shape(s.spec.shape, t.entries.at(s.name), t.replicas), s.spec.dtype, {}});
  };
  const bool returns = !has_feeds || !t.outfeed;
  if (trains) {
    if (returns) {
      for (const D2hStream& s : t.losses) add_result(s, s.name);
      for (const D2hStream& s : t.predictions) add_result(s, s.name);
    }
    for (const D2hStream& s : t.loss_sums)
      loss_sums_.emplace_back(TensorSpec{entries_shape({}, 1, t.replicas), s.spec.dtype, {}});
    const int64_t micro_batches = checked_mul(size_.device_iterations, size_.accumulate);
    if (t.seed) seeds_ = HostTensor({entries_shape({2}, micro_batches, t.replicas), u32, {}});
    if (t.learning_rate)
      rates_ = HostTensor({entries_shape({}, t.rates_of_run, t.replicas), f32, {}});
    coefficients_ = coefficient_arrays(t);
  } else if (returns) {
    // Results of training keep their names.
    std::vector<std::string> trained;
    for (const auto* list : {&t.losses, &t.predictions}) {
      for (const D2hStream& s : *list) trained.push_back(s.name);
    }
    if (t.outfeed) {
      for (const FeedField& f : t.outfeed->fields) trained.push_back(f.name);
    }
    for (const D2hStream& s : t.eval_predictions) {
      const std::string name = without_prefix(s.name, "eval_");
      const bool renamed = std::find(trained.begin(), trained.end(), name) != trained.end();
      add_result(s, renamed ? name : s.name);
    }
  }
  find_labels(network);
}

void ModelCalls::find_labels(const Network& network) {
  const Training& t = programs_.training;
  const bool trains = use_ == Use::kTrain;
  const std::vector<Labelled>& labelled = trains ? t.labelled : t.eval_labelled;
  for (size_t i = 0; i < results_.size() && returns_last(); ++i) {
    for (const Labelled& l : labelled) {
      if (results_[i].name == l.prediction)
        labelled_.push_back({i, field_of(network, l.labels), l.ignore_index, l.regression});
    }
  }
  const std::vector<Labelled>& other = trains ? t.eval_labelled : t.labelled;
  for (const auto* all : {&labelled, &other}) {
    for (const Labelled& l : *all) {
      if (l.regression) continue;
      known_.emplace_back(field_of(network, l.labels), l);
      if (!labels_) labels_ = known_.back().first;
    }
  }
}

ModelCalls::Field ModelCalls::field_of(const Network& network, const std::string& name) const {
  const std::vector<train::Field>& all = network.fields();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& f) { return f.name == name; });
  SLUICE_CHECK(found != all.end());
  const size_t before = std::count_if(all.begin(), found, [](const auto& f) { return !f.once; });
  const int64_t entries = found->once ? 1 : checked_mul(size_.device_iterations, size_.accumulate);
  return {{}, name, entries, found->once ? SIZE_MAX : before};
}

const HostTensor* ModelCalls::labels(const data::Element& samples, const Field& field) const {
  const HostTensor* const found = find(samples, field);
  require(found == nullptr || found->dtype() == i32, "{}: the labels '{}' must be int32, got {}",
          program_, field.name, found == nullptr ? "" : to_string(found->spec()));
  return found;
}

const HostTensor* ModelCalls::labels(const data::Element& samples,
                                     const LabelledResult& result) const {
  if (!result.regression) return labels(samples, result.labels);
  const HostTensor* const found = find(samples, result.labels);
  require(found == nullptr || is_float(found->dtype()),
          "{}: the labels '{}' must be floating-point, got {}", program_, result.labels.name,
          found == nullptr ? "" : to_string(found->spec()));
  return found;
}

std::vector<ClassLabels> ModelCalls::class_labels(const data::Element& samples) const {
  std::vector<ClassLabels> all;
  for (const auto& [field, rule] : known_) {
    const HostTensor* const found = rule.classes > 0 ? labels(samples, field) : nullptr;
    if (found != nullptr) all.push_back({found, rule.classes, rule.ignore_index});
  }
  return all;
}

const HostTensor* ModelCalls::labels(const data::Element& samples) const {
  return labels_ ? labels(samples, *labels_) : nullptr;
}

const HostTensor* ModelCalls::find(const data::Element& samples, const Field& field) {
  if (samples.names.empty())
    return field.index < samples.arrays.size() ? &samples.arrays[field.index] : nullptr;
  const HostTensor* found = nullptr;
  for (size_t i = 0; i < samples.names.size(); ++i) {
    if (samples.names[i] != field.name) continue;
    require(found == nullptr, "samples: the fields must have different names, got '{}' twice",
            field.name);
    found = &samples.arrays[i];
  }
  return found;
}

// Accepts any shape with the samples as first axis and the elements of the field.
ConstArrayView ModelCalls::view(const data::Element& samples, const Field& field) const {
  const TensorSpec& entry = field.stream.spec;
  const int64_t replicas = programs_.training.replicas;
  const bool once = field.index == SIZE_MAX;
  const Shape expected = once ? entries_shape(entry.shape, 1, replicas)
                              : joined(entry.shape, field.entries * replicas);
  const HostTensor* const found = find(samples, field);
  require(found != nullptr, "{}: samples must have the field '{}' {} {}, got {}", program_,
          field.name, to_string(expected), name_of(entry.dtype), to_string(specs_of(samples)));
  const bool same_first =
      expected.rank() == 0 || found->shape().rank() == 0 || found->shape()[0] == expected[0];
  require(found->dtype() == entry.dtype && same_first && found->elements() == expected.elements(),
          "{}: the field '{}' must be {} {} for {} samples a call, got {} {}", program_, field.name,
          to_string(expected), name_of(entry.dtype), to_string(size_), to_string(found->shape()),
          name_of(found->dtype()));
  const Shape array = entries_shape(entry.shape, field.entries, replicas);
  return {TensorSpec{array, entry.dtype, {}}, found->bytes().data()};
}

// A field of the infeed in a call would have no effect.
void ModelCalls::check_fed(const data::Element& samples) const {
  const auto is_fed = [&](const std::string& name) {
    return std::find(fed_.begin(), fed_.end(), name) != fed_.end();
  };
  const bool tuple = samples.names.empty() && !samples.arrays.empty();
  require(!tuple && std::none_of(samples.names.begin(), samples.names.end(), is_fed),
          "{}: the fields {} must come from the infeed, got {} in a call; leave them out", program_,
          fmt::join(fed_, ", "), to_string(specs_of(samples)));
}

void ModelCalls::run(const data::Element& samples, std::span<const double> rates, int64_t update,
                     bool watches) {
  const Training& t = programs_.training;
  if (!fed_.empty()) check_fed(samples);
  std::vector<ConstArrayView> views;
  Bound bound{watches, {}};
  for (const Field& field : fields_) {
    views.push_back(view(samples, field));
    bound.second.push_back(views.back().data);
  }
  auto found = std::find_if(bindings_.begin(), bindings_.end(),
                            [&](const auto& b) { return b.first == bound; });
  if (found == bindings_.end()) {
    if (bindings_.size() == kMaxBindings) bindings_.erase(bindings_.begin());
    bindings_.emplace_back(std::move(bound), bind(views, watches));
    found = std::prev(bindings_.end());
  }
  if (use_ == Use::kTrain) {
    if (t.seed) fill_seeds(seeds_, seed_, update, size_.device_iterations);
    if (t.learning_rate) fill_rates(rates_, rates);
  }
  try {
    programs_.session.run_into(found->second);
  } catch (Error& e) {
    note_stages(t, e);
    throw;
  }
}

bool ModelCalls::returns_last() const {
  return output_.mode == Output::Mode::kAll || output_.mode == Output::Mode::kFinal;
}

void ModelCalls::check_items(const char* caller, const CallSize& item) const {
  require(size_ == item, "{}: an item of the loader must have the samples of a call, {}, got {}",
          caller, to_string(size_), to_string(item));
}

// A program writes the entries of each update for Output::every().
ModelCalls::Taken ModelCalls::taken(int64_t written) const {
  const int64_t update = size_.accumulate * programs_.training.replicas;  // Entries of an update.
  const bool whole = written == update * size_.device_iterations;
  if (output_.mode == Output::Mode::kEvery && whole) return {update * output_.period, update};
  return {written, written};
}

HostTensor ModelCalls::selected(const HostTensor& array, const TensorSpec& entry) const {
  const int64_t all = array.elements() / std::max<int64_t>(entry.shape.elements(), 1);
  const auto [period, kept] = taken(all);
  HostTensor result({joined(entry.shape, all / period * kept), entry.dtype, {}});
  const Slices from(array.bytes(), all);
  const Slices to(result.bytes(), all / period);
  for (int64_t group = 0; group < all / period; ++group)
    std::ranges::copy(from.range((group + 1) * period - kept, kept), to[group].begin());
  return result;
}

data::Element ModelCalls::results() const {
  data::Element element;
  for (size_t i = 0; i < results_.size(); ++i)
    element.arrays.push_back(selected(arrays_[i], results_[i].spec));
  element.names = names_;
  return element;
}

ModelState::ModelState(Network network, Options options, std::optional<nn::Optimizer> optimizer)
    : network_(std::move(network)),
      options_(std::move(options)),
      trains_(optimizer.has_value()),
      optimizer_(std::move(optimizer)) {
  if (const auto* rate = std::get_if<double>(&options_.learning_rate)) {
    check_learning_rate("training_model: learning_rate", *rate);
    rate_ = *rate;
  } else if (optimizer_ && options_.learning_rate.index() == 0) {
    rate_ = optimizer_->default_learning_rate();
  }
}

ModelState::ModelState(ModelCalls::Use use, Network network, PlannedPrograms planned)
    : network_(std::move(network)),
      options_(planned.options),
      trains_(use == ModelCalls::Use::kTrain) {
  inference_.device_iterations = planned.training.eval_iterations;
  inference_.replicas = planned.training.replicas;
  if (!planned.training.learning_rate) rate_ = planned.training.constant_rate;
  open(std::make_unique<ModelPrograms>(std::move(planned)));
}

void ModelState::open(std::unique_ptr<ModelPrograms> programs) {
  train_.reset();
  infer_.reset();
  programs_ = std::move(programs);
  const Training& t = programs_->training;
  if (t.infeed && options_.infeed) programs_->session.bind_feed(*t.infeed, options_.infeed);
  if (t.outfeed && options_.outfeed) programs_->session.bind_feed(*t.outfeed, options_.outfeed);
  if (trains_) train_.emplace(*programs_, network_, ModelCalls::Use::kTrain, options_);
  infer_.emplace(*programs_, network_, ModelCalls::Use::kInfer, inference_options());
}

bool ModelState::is_compiled() const {
  const auto lock = next_call();
  return programs_ != nullptr;
}

int64_t ModelState::updates() const {
  const auto lock = next_call();
  return run_.updates;
}

std::optional<double> ModelState::rate() const {
  const auto lock = next_call();
  return rate_;
}

void ModelState::compile() {
  const auto lock = next_call();
  if (programs_) return;
  if (training_) return open_inference_session();
  std::optional<Options> inference;
  if (trains_) inference = inference_;
  open(std::make_unique<ModelPrograms>(network_, optimizer_, options_, inference));
}

ModelPrograms& ModelState::programs() {
  const auto lock = next_call();
  compile();
  return *programs_;
}

ModelCalls& ModelState::calls(ModelCalls::Use use) {
  const auto lock = next_call();
  compile();
  return use == ModelCalls::Use::kTrain ? *train_ : *infer_;
}

data::Element ModelState::infer(const data::Element& samples) {
  const auto lock = next_call();
  ModelCalls& calls = this->calls(ModelCalls::Use::kInfer);
  if (training_) copy_weights();
  calls.run(samples, {}, 0);
  return calls.results();
}

bool ModelState::add_inference(const Options& options) {
  const auto lock = next_call();
  if (has_inference_ || programs_ || !optimizer_ || options.replicas != options_.replicas)
    return false;
  inference_ = options;
  return has_inference_ = true;
}

void ModelState::set_learning_rate(double rate) {
  const auto lock = next_call();
  check_learning_rate("set_learning_rate: the rate", rate);
  require(!programs_ || programs_->training.learning_rate,
          "set_learning_rate: the rate is a constant of the programs; build them with "
          "StreamedRate{{}}");
  rate_ = rate;
}

}  // namespace internal

using Use = internal::ModelCalls::Use;

std::string to_string(const CallSize& size) {
  std::string text = fmt::format("micro-batch {}", size.micro_batch);
  const auto multiply = [&](const char* name, int64_t factor) {
    if (factor > 1) text += fmt::format(" x {} {}", name, factor);
  };
  multiply("device iterations", size.device_iterations);
  multiply("accumulate", size.accumulate);
  multiply("replicas", size.replicas);
  return fmt::format("{} = {}", text, size.samples());
}

data::Element TrainingModel::operator()(const data::Element& samples) {
  const auto lock = state_->next_call();  // Until the results are copied.
  return state_->train(samples).results();
}
void TrainingModel::compile() { state_->compile(); }
bool TrainingModel::is_compiled() const { return state_->is_compiled(); }
const Options& TrainingModel::options() const { return state_->options(); }
CallSize TrainingModel::call_size() { return state_->calls(Use::kTrain).size(); }
int64_t TrainingModel::updates() const { return state_->updates(); }
Watched TrainingModel::watched() const { return state_->watched(); }
Run TrainingModel::run() const { return state_->run(); }
void TrainingModel::continue_run(const Run& run) { state_->continue_run(run, /*any_data=*/true); }
void TrainingModel::set_learning_rate(double rate) { state_->set_learning_rate(rate); }
void TrainingModel::set_optimizer(const nn::Optimizer& optimizer, double learning_rate) {
  state_->set_optimizer(optimizer, learning_rate);
}
void TrainingModel::save(const std::string& path,
                         const std::map<std::string, std::string>& metadata) {
  check_finite(session(), programs(), updates());
  std::map<std::string, std::string> all = state_->save_metadata();
  all.insert(metadata.begin(), metadata.end());
  session().save(path, all);
}
std::vector<std::string> TrainingModel::load(const std::string& path) {
  return load(path, {}).unused;
}
LoadResult TrainingModel::load(const std::string& path, const LoadOptions& options) {
  if (options.strict) require_state(programs(), path, options);
  LoadResult result = session().load(path, options);
  start_missing_averages(session(), programs(), result);
  return result;
}
std::vector<std::string> TrainingModel::load_weights(const std::string& path) {
  return load_weights(path, {}).unused;
}
LoadResult TrainingModel::load_weights(const std::string& path, const LoadOptions& options) {
  return train::load_weights(session(), programs(), path, options);
}
HostTensor TrainingModel::weight(std::string_view path) {
  const nn::NamedTensors& variables = programs().variables;
  const Tensor* found = variables.find_leaf(std::string(path));
  if (found == nullptr && path.starts_with(kAveragePrefix)) {
    const auto weight = path.substr(std::string_view(kAveragePrefix).size());
    found = programs().averages.find_leaf(std::string(weight));
  }
  require(found != nullptr, "weight: must be one of {}, got '{}'",
          fmt::join(variables.keys_flat(), ", "), path);
  return session().read(*found);
}
report::Plan TrainingModel::plan() { return session().plan(); }
const OffloadDecision& TrainingModel::offload() { return state_->programs().offload; }
const Training& TrainingModel::programs() { return state_->programs().training; }
Session& TrainingModel::session() { return state_->programs().session; }

data::Element InferenceModel::operator()(const data::Element& samples) {
  return state_->infer(samples);
}
void InferenceModel::compile() { state_->compile(); }
const Options& InferenceModel::options() const { return state_->inference_options(); }
CallSize InferenceModel::call_size() { return state_->calls(Use::kInfer).size(); }
std::vector<std::string> InferenceModel::load(const std::string& path) {
  return load(path, {}).unused;
}
LoadResult InferenceModel::load(const std::string& path, const LoadOptions& options) {
  internal::ModelState* const training = state_->training();
  if (training == nullptr) return session().load(path, averages_as_weights(path, options));
  internal::ModelPrograms& programs = training->programs();
  return load_weights(programs.session, programs.training, path, options);
}
report::Plan InferenceModel::plan() { return session().plan(); }
const OffloadDecision& InferenceModel::offload() { return state_->programs().offload; }
const Training& InferenceModel::programs() { return state_->programs().training; }
Session& InferenceModel::session() { return state_->programs().session; }

namespace {

void check_updates(const Options& options) {
  require(options.accumulate == 1,
          "inference_model: accumulate must be 1, as there are no updates, got {}; "
          "device_iterations is the number of micro-batches",
          options.accumulate);
}

}  // namespace

TrainingModel training_model(const Network& network, const Options& options,
                             nn::Optimizer optimizer) {
  return internal::ModelAccess::make<TrainingModel>(
      std::make_shared<internal::ModelState>(network, options, std::move(optimizer)));
}

TrainingModel open_training(const Network& network, PlannedPrograms programs) {
  return internal::ModelAccess::make<TrainingModel>(
      std::make_shared<internal::ModelState>(Use::kTrain, network, std::move(programs)));
}

TrainingModel training_model(const Network& network, const Options& options, const Ir& ir,
                             const Training& programs) {
  return open_training(network, internal::programs_of(ir, programs, options));
}

InferenceModel inference_model(const TrainingModel& training) {
  return internal::ModelAccess::make<InferenceModel>(internal::ModelAccess::shared(training));
}

InferenceModel inference_model(const TrainingModel& training, const Options& options) {
  check_updates(options);
  const auto& state = internal::ModelAccess::shared(training);
  if (state->add_inference(options)) return internal::ModelAccess::make<InferenceModel>(state);
  Options of_inference = options;
  of_inference.infeed = nullptr;  // Options of the training may name its own feeds.
  of_inference.outfeed = nullptr;
  return internal::ModelAccess::make<InferenceModel>(
      std::make_shared<internal::ModelState>(state, of_inference));
}

InferenceModel inference_model(const Network& network, const Options& options) {
  check_updates(options);
  return internal::ModelAccess::make<InferenceModel>(
      std::make_shared<internal::ModelState>(network, options, std::nullopt));
}

InferenceModel open_inference(const Network& network, PlannedPrograms programs) {
  return internal::ModelAccess::make<InferenceModel>(
      std::make_shared<internal::ModelState>(Use::kInfer, network, std::move(programs)));
}

InferenceModel inference_model(const Network& network, const Options& options, const Ir& ir,
                               const Training& programs) {
  return open_inference(network, internal::programs_of(ir, programs, options));
}

double accuracy(const HostTensor& predictions, const HostTensor& labels) {
  const Shape& shape = predictions.shape();
  require(predictions.dtype() == f32 && shape.rank() == 2 && shape[0] > 0 && shape[1] > 0,
          "accuracy: predictions must be (samples, classes) float32, got {}",
          to_string(predictions.spec()));
  require(labels.dtype() == i32 && labels.shape().rank() == 1 && labels.elements() >= shape[0],
          "accuracy: labels must be int32, one for each of {} predictions or more, got {}",
          shape[0], to_string(labels.spec()));
  LabelCounts counts;
  counts.add(predictions, labels.as<int32_t>().last(static_cast<size_t>(shape[0])), {});
  return *counts.percentage();
}

}  // namespace sluice::train
