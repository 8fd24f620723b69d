#include "sluice/train/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include "sluice/base/checked.h"
#include "sluice/base/numbers/number_text.h"
#include "sluice/base/sys.h"
#include "sluice/runtime/process_group.h"
#include "sluice/train/checkpoints/best_weights.h"
#include "sluice/train/checkpoints/checkpoints.h"
#include "sluice/train/feeds/training_items.h"
#include "sluice/train/metrics/call_loss.h"
#include "sluice/train/metrics/label_counts.h"
#include "sluice/train/model_state.h"
#include "sluice/train/run/finite.h"
#include "sluice/train/run/progress.h"
#include "sluice/train/run/training_log.h"
#include "sluice/train/step_arrays.h"

namespace sluice::train {
namespace {

using internal::ModelCalls;
using Clock = std::chrono::steady_clock;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr size_t kReservedLosses = 1 << 20;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

ProgressBar::Shown shown(Show show) {
  return show == Show::kNo ? ProgressBar::Shown::kNo : ProgressBar::Shown::kYes;
}

CallSize call_size_of(const Options& options, int64_t batch_size) {
  return {batch_size, options.device_iterations, options.accumulate, options.replicas};
}

data::LoaderOptions loader_options(const CallSize& size, const DataLoaderOptions& options) {
  require(options.batch_size >= 1, "loader: batch_size must be at least 1, got {}",
          options.batch_size);
  for (const int64_t factor : {size.device_iterations, size.accumulate, size.replicas})
    require(factor >= 1,
            "loader: device_iterations, accumulate and replicas must be at least 1, "
            "got {}",
            factor);
  checked_mul(checked_mul(size.micro_batch, size.device_iterations),
              checked_mul(size.accumulate, size.replicas));
  return {.batch = size.samples(),
          .shuffle = options.shuffle,
          .seed = options.seed,
          .workers = options.workers,
          .depth = options.depth,
          .remainder = options.remainder,
          .factors = to_string(size)};
}

std::string loss_text(double loss, const std::optional<double>& accuracy) {
  std::string text = fmt::format("Loss:{:.4f}", loss);
  if (accuracy) text += fmt::format(" | Accuracy:{:.2f}%", *accuracy);
  return text;
}

// Compiles a model, and prints how long it took.
template <typename Model>
void compile(Model& model, bool is_compiled, Show show) {
  const auto begin = Clock::now();
  model.compile();
  if (show == Show::kAll && !is_compiled) {
    const std::string time = clock_text(seconds_since(begin));
    sys::print_stderr("Graph compilation: 100% [{}<00:00]\n", time);
  }
}

}  // namespace

DataLoader::DataLoader(const Options& options, data::Dataset dataset,
                       const DataLoaderOptions& loader)
    : BatchLoader(std::move(dataset),
                  loader_options(call_size_of(options, loader.batch_size), loader)),
      size_(call_size_of(options, loader.batch_size)) {}

const HostTensor& CallReport::result(std::string_view name) const {
  for (size_t i = 0; i < names_->size(); ++i) {
    if ((*names_)[i] == name) return (*arrays_)[i];
  }
  fail(ErrorKind::kUsage, "fit: a result must be one of {}, got '{}'", fmt::join(*names_, ", "),
       name);
}

// Lets checkpoints write the log to the disk before a save, and store the best weights, as long as
// this object lives.
class InEachSave {
 public:
  InEachSave(Checkpoints* checkpoints, std::optional<TrainingLog>& log, const std::string& best)
      : checkpoints_(checkpoints), log_(&log) {
    if (checkpoints_ == nullptr) return;
    best_ = checkpoints_->add_best(best);
    others_ = checkpoints_->before_each_save(nullptr);
    checkpoints_->before_each_save([this] {
      if (*log_) (*log_)->sync();
      if (others_ != nullptr) others_();
    });
  }
  ~InEachSave() {
    if (checkpoints_ == nullptr) return;
    checkpoints_->before_each_save(std::move(others_));
    checkpoints_->add_best(std::move(best_));
  }
  InEachSave(const InEachSave&) = delete;
  InEachSave& operator=(const InEachSave&) = delete;

 private:
  Checkpoints* checkpoints_;
  std::optional<TrainingLog>* log_;
  std::string best_;              ///< Path of the best weights that were added before.
  std::function<void()> others_;  ///< Called before each save, too.
};

/// A run of fit().
class Fit {
 public:
  Fit(internal::ModelState& state, TrainingModel& model, DataLoader& data,
      const FitOptions& options)
      : state_(state),
        model_(model),
        data_(data),
        options_(options),
        calls_(state.calls(ModelCalls::Use::kTrain)),
        training_(state.programs().training),
        call_loss_(training_, calls_),
        source_(state, data, calls_),
        iterations_(calls_.size().device_iterations) {
    check();
    report_.names_ = &calls_.names();
    report_.arrays_ = &calls_.arrays();
    written_ = calls_.arrays()[0].elements();
    taken_ = calls_.taken(written_);
    values_ = static_cast<size_t>(written_ / taken_.period * taken_.kept);
    items_ = data.items();
    if (items_ == data::kForever) items_.reset();
    total_ = options.calls ? *options.calls
             : items_      ? checked_mul(options.epochs, *items_)
                           : kNoLimit;
    source_.limit({total_, items_ || options.calls ? kNoLimit : options.epochs});
  }

  FitResult run() {
    const auto reserved = items_ || options_.calls
                              ? values_ * static_cast<size_t>(std::min<int64_t>(total_, 1 << 20))
                              : kReservedLosses;
    result_.losses.reserve(std::min(kReservedLosses, reserved));
    if (options_.show == Show::kAll) show_header();
    if (options_.show != Show::kNo && !training_.frozen.empty()) {
      sys::print_stderr("Frozen weights: {}\n", fmt::join(training_.frozen, ", "));
    }
    open_log();
    const InEachSave in_each_save(options_.checkpoints, log_, options_.save_best);
    result_.stopped_early = is_patience_over();
    find_best();
    const auto begin = Clock::now();
    const int64_t epochs =
        items_ && *items_ > 0 ? (total_ + *items_ - 1) / *items_ : options_.epochs;
    int64_t first = 0;  // Number of the first epoch.
    for (int64_t e = 0; has_epoch(e); ++e) {
      start_epoch();
      if (e == 0) first = source_.epoch();
      if (options_.show != Show::kNo)
        sys::print_stderr("Epoch {}/{}\n", first + e + 1, first + epochs);
      run_epoch();
    }
    result_.seconds = seconds_since(begin);
    // The losses tell nothing about the last update.
    if (result_.updates > 0) check_finite(state_.programs().session, training_, state_.updates());
    if (options_.checkpoints != nullptr) {
      options_.checkpoints->save();
      options_.checkpoints->wait();
    }
    if (compares()) result_.best = state_.best();
    if (!options_.save_best.empty() && result_.best.value && !result_.stopped) {
      check_best(options_.save_best, state_.run().id, result_.best);
      model_.load(options_.save_best);
    }
    return std::move(result_);
  }

 private:
  void check() const {
    calls_.check_items("fit", data_.call_size());
    source_.check();
    require(options_.epochs >= 0, "fit: epochs must be at least 0, got {}", options_.epochs);
    require(options_.calls.value_or(0) >= 0, "fit: calls must be at least 0, got {}",
            options_.calls.value_or(0));
    require(data_.items() != data::kForever || options_.calls,
            "fit: data without an end require `calls`, got epochs");
    require(options_.check_replicas.value_or(1) >= 1,
            "fit: check_replicas must be at least 1, got {}", options_.check_replicas.value_or(1));
    if (options_.schedule) check_schedule("fit: schedule", *options_.schedule);
    require(!reduces_on_plateau() || options_.validation_model != nullptr,
            "fit: schedule.decay plateau requires a validation, got none");
    require(options_.save_every >= 0, "fit: save_every must be at least 0, got {}",
            options_.save_every);
    require(options_.save_every == 0 || !options_.save.empty(),
            "fit: save_every requires `save`, the file");
    require(options_.log_histograms >= 0, "fit: log_histograms must be at least 0, got {}",
            options_.log_histograms);
    require(options_.log_histograms == 0 || !options_.log_dir.empty(),
            "fit: log_histograms requires `log_dir`, the folder");
    require((options_.validation_model == nullptr) == (options_.validation_data == nullptr),
            "fit: a validation requires a model and data, got one of them");
    require(options_.validate_every >= 0, "fit: validate_every must be at least 0, got {}",
            options_.validate_every);
    require(options_.patience >= 0, "fit: patience must be at least 0, got {}", options_.patience);
    require(validates() || (options_.validate_every == 0 && !compares()),
            "fit: validate_every, patience and save_best require a validation, got none");
    require(options_.metric.empty() || compares(),
            "fit: metric requires patience or save_best, got none of them");
    require(!training_.losses.empty(), "fit: the program must return a loss, got none");
    for (const D2hStream& loss : training_.losses) {
      require(loss.spec.dtype == f32 && loss.spec.shape.rank() == 0,
              "fit: loss '{}' must be a float32 scalar, got {}; cast it with ops::cast()",
              loss.name, to_string(loss.spec));
    }
    for (const D2hStream& loss : training_.losses)
      require(training_.entries.at(loss.name) == training_.entries.at(training_.losses[0].name),
              "fit: losses must be returned equally often, got '{}' and '{}'",
              training_.losses[0].name, loss.name);
  }

  void show_header() const {
    std::string text = fmt::format("{} samples a call", to_string(calls_.size()));
    if (items_)
      text += fmt::format(", {} calls an epoch, {} samples dropped", *items_,
                          data_.dropped().value_or(0));
    sys::print_stderr("{}\n", text);
  }

  bool ends() const { return result_.stopped || result_.stopped_early; }

  bool has_epoch(int64_t e) const {
    if (ends()) return false;
    return items_ || options_.calls ? result_.calls < total_ : e < options_.epochs;
  }

  // Calls of fit() continue each other.
  void start_epoch() {
    source_.start_epoch(options_.checkpoints ? SampleHash::kYes : SampleHash::kNo);
  }

  void run_epoch() {
    const int64_t left = total_ - result_.calls;
    const int64_t length =
        items_ ? std::min(left, *items_ - source_.position()) : (options_.calls ? left : 0);
    report_.calls_of_epoch = length;
    logged_ = Clock::now();
    std::optional<ProgressBar> bar(std::in_place, length, shown(options_.show));
    bool at_end = false;  // At the end of data of unknown length.
    int64_t done = 0;
    while ((length == 0 ? result_.calls < total_ : done < length) && !ends()) {
      at_end = !source_.next();
      if (at_end) break;
      call();
      ++done;
      if (bar->is_due(done))
        bar->show(done, loss_text(report_.loss, report_.accuracy) + source_.waits_text());
      const bool last = items_ && done == length;
      if (last) bar.reset();
      end_call(last, bar ? &*bar : nullptr);
    }
    bar.reset();
    if (at_end && source_.position() > 0) state_.end_epoch();
    if (result_.stopped) return;
    require(source_.position() > 0, "fit: 0 full batches: an epoch must have {} samples or more",
            calls_.size().samples());
    if (!items_ && validates() && options_.validate_every == 0)
      validate(at_end, options_.show, nullptr);
    if (!options_.save.empty() && options_.save_every == 0) model_.save(options_.save);
  }

  bool reduces_on_plateau() const {
    return options_.schedule && options_.schedule->decay == Decay::kPlateau;
  }

  void observe(const Evaluation& validation) {
    const bool smaller = options_.schedule->plateau.mode == Plateau::Mode::kMin;
    const std::optional<double> value = validation[smaller ? "loss" : "accuracy"];
    require(value.has_value(),
            "fit: schedule.plateau.mode {} requires {} of the validation, got none",
            smaller ? "min" : "max", smaller ? "a loss" : "an accuracy");
    const auto lock = state_.next_call();
    options_.schedule->observe(state_.plateau(), *value);
  }

  // Other threads may call the model between two calls, not while the results are read.
  void call() {
    const auto lock = state_.next_call();
    const int64_t update = state_.updates();
    state_.train(source_.samples(), options_.schedule ? &*options_.schedule : nullptr,
                 options_.optimizer);
    source_.end_call();
    report_.watched = state_.has_just_watched();
    // Before the checks of the losses, so that a call that diverges can be examined.
    if (report_.watched && log_ && !log_->failed()) log_->add_watched(state_.watched());
    append_losses();
    ++result_.calls;
    result_.updates += iterations_;
    report_.call = result_.calls;
    report_.losses = std::span(result_.losses).last(values_);
    report_.loss = result_.loss = mean_loss(update);
    if (options_.check_replicas && result_.updates % *options_.check_replicas < iterations_)
      compare_replicas();
    report_.accuracy = result_.accuracy = accuracy_of(source_.labels());
    call_seconds_ = seconds_since(logged_);
    if (options_.after_call) result_.stopped = !options_.after_call(report_);
  }

  // Validates, logs and saves after a call. `last`: the last one of an epoch, or of all calls.
  void end_call(bool last, ProgressBar* bar) {
    validation_ = nullptr;
    const int64_t every = options_.validate_every, updates = state_.updates();
    if (validates() && every > 0 && updates / every > (updates - iterations_) / every)
      validate(/*counts=*/true, Show::kNo, bar);
    const bool whole = last && source_.position() == *items_;
    if (validates() && every == 0 && last && (whole || !result_.stopped))
      validate(whole, options_.show, bar);
    if (!options_.log_dir.empty()) log_call();
    if (options_.save_every > 0 && result_.calls % options_.save_every == 0)
      model_.save(options_.save);
    if (options_.checkpoints != nullptr) options_.checkpoints->after_call();
    logged_ = Clock::now();
  }

  bool validates() const { return options_.validation_model != nullptr; }

  // Evaluates the model. A validation that counts may reduce the rate, store the best weights or
  // end the training; that at the end of a part of an epoch does not, as a longer run has none.
  void validate(bool counts, Show show, ProgressBar* bar) {
    Evaluation& validation = result_.validations.emplace_back(
        evaluate(*options_.validation_model, *options_.validation_data, show));
    validation.updates = state_.updates();
    validation_ = &validation;
    if (bar != nullptr) bar->end_line();
    if (options_.show != Show::kNo && options_.validate_every == 0)
      sys::print_stderr("{}\n", to_string(validation));
    if (options_.show != Show::kNo && options_.validate_every > 0) show_validation(validation);
    std::vector<TaggedNumber> numbers;
    for (const Metric& m : validation.metrics)
      numbers.emplace_back("validation/" + m.name, m.value);
    if (log_ && !numbers.empty()) log_->add_numbers(state_.updates(), numbers);
    if (!counts) return;
    if (reduces_on_plateau()) observe(validation);
    if (compares()) compare_with_best(validation);
  }

  // "step 200: loss 2.3118, accuracy 9.43%".
  static void show_validation(const Evaluation& validation) {
    std::vector<std::string> texts;
    for (const Metric& m : validation.metrics) {
      if (m.name.find('/') != m.name.npos) continue;
      texts.push_back(m.percent ? fmt::format("{} {:.2f}%", m.name, m.value)
                                : fmt::format("{} {:.4f}", m.name, m.value));
    }
    sys::print_stderr("step {}: {}\n", validation.updates, fmt::join(texts, ", "));
  }

  bool compares() const { return options_.patience > 0 || !options_.save_best.empty(); }

  void compare_with_best(const Evaluation& validation) {
    require(!validation.metrics.empty(), "fit: a validation must have a metric, got none");
    const Metric& metric =
        options_.metric.empty() ? validation.metrics.front() : validation.metric(options_.metric);
    const auto lock = state_.next_call();
    BestValidation& best = state_.best();
    const bool compared = best.value && best.metric == metric.name;
    if (compared && !metric.is_better_than(*best.value)) {
      ++best.bad;
    } else {
      best = {metric.name, metric.value, state_.updates(), 0};
      state_.set_resumed_best(std::nullopt);
      if (!options_.save_best.empty())
        model_.save(options_.save_best, best_metadata(state_.run().id, best));
    }
    result_.stopped_early = is_patience_over();
  }

  bool is_patience_over() {
    return options_.patience > 0 && state_.best().bad >= options_.patience;
  }

  // Finds the file with the best weights of the run. A run that was killed may have replaced it
  // after the checkpoint that is resumed.
  void find_best() {
    if (options_.save_best.empty()) return;
    state_.name_run();
    if (!state_.best().value) return;
    runtime::Agreement& agreement = state_.programs().session.agreement();
    std::optional<Error> refusal;
    try {
      if (state_.resumed_best() && agreement.rank() == 0)
        restore_best(options_.save_best, *state_.resumed_best());
    } catch (const Error& e) {
      refusal = e;
    }
    if (agreement.any(refusal.has_value())) {
      if (refusal) throw *refusal;
      fail(ErrorKind::kIo, "fit: the first process cannot write to {}", options_.save_best);
    }
    if (!sys::exists(options_.save_best))
      fail(ErrorKind::kUsage,
           "fit: save_best must be the file with the best weights of the run, after {} updates, "
           "got {}, which does not exist",
           state_.best().updates, options_.save_best);
  }

  // Opens the log in the first process. All processes fail if that one cannot.
  void open_log() {
    if (options_.log_dir.empty()) return;
    state_.name_run();
    Session& session = state_.programs().session;
    std::optional<Error> refusal;
    if (session.agreement().rank() == 0) {
      std::vector<std::string> names;
      for (const D2hStream& loss : training_.losses) names.push_back(loss.name);
      if (names.size() == 1) names.clear();
      try {
        const TrainingLog::Columns columns{state_.run().id, names, validates()};
        std::string name = state_.log_in(options_.log_dir);
        const bool continues =
            !name.empty() && has_log(folder_of_log(options_.log_dir, name), columns);
        if (!continues) name = name_of_new_log(options_.log_dir);
        const std::string folder = folder_of_log(options_.log_dir, name);
        log_.emplace(folder, columns, continues ? std::optional(state_.updates()) : std::nullopt);
        state_.set_log(options_.log_dir, name);
        result_.log_dir = folder;
        if (options_.show != Show::kNo && folder != options_.log_dir)
          sys::print_stderr("log: {}; {} has the log of another run\n", folder, options_.log_dir);
        log_->add_numbers(state_.updates(), bytes_of(session));
      } catch (const Error& e) {
        refusal = e;
      }
    }
    if (!session.agreement().any(refusal.has_value())) return;
    if (refusal) throw *refusal;
    fail(ErrorKind::kIo, "fit: the first process cannot write to {}", options_.log_dir);
  }

  void log_call() {
    const int64_t step = state_.updates(), every = options_.log_histograms;
    if (log_) {
      const auto samples = static_cast<double>(calls_.size().samples());
      TrainingLog::Call call{.step = step,
                             .loss = report_.loss,
                             .accuracy = report_.accuracy,
                             .samples_per_second = samples / std::max(call_seconds_, 1e-9),
                             .learning_rate = state_.rate(),
                             .losses = {}};
      for (size_t i = 0; i < result_.parts.size(); ++i) call.losses.push_back(call_loss_.mean(i));
      if (validation_ != nullptr) {
        for (const std::string_view name : TrainingLog::kMetrics)
          call.validation.push_back((*validation_)[name]);
      }
      log_->add(call);
    }
    if (every == 0 || step % every >= iterations_) return;
    Session& session = state_.programs().session;
    if (log_ && log_->failed() && session.agreement().size() == 1) return;
    each_histogram(session, training_.variables,
                   [&](const std::string& path, const data::Histogram& values) {
                     if (log_) log_->add_histogram(step, path, values);
                   });
  }

  // Returns the index of loss `i` of a call among the losses that the program writes.
  size_t position_of(size_t i) const {
    const auto kept = static_cast<size_t>(taken_.kept), period = static_cast<size_t>(taken_.period);
    return i / kept * period + (period - kept) + i % kept;
  }

  void append_losses() {
    const size_t parts = training_.losses.size();
    if (parts > 1) result_.parts.resize(parts);
    for (size_t value = 0; value < values_; ++value) {
      double sum = 0;
      for (size_t i = 0; i < parts; ++i) {
        const float part = calls_.arrays()[i].as<float>()[position_of(value)];
        sum += training_.loss_weights[i] * static_cast<double>(part);
        if (parts > 1) result_.parts[i].push_back(part);
      }
      result_.losses.push_back(static_cast<float>(sum));
      std::vector<float> each;
      for (const std::vector<float>& part : result_.parts) each.push_back(part.back());
      state_.add_loss(result_.losses.back(), each);
    }
  }

  // Returns the last update of the call that contributes to loss `i`.
  int64_t update_of(size_t i) const {
    const int64_t replicas = calls_.size().replicas, entries = written_ / replicas;
    const int64_t next = static_cast<int64_t>(position_of(i)) / replicas + 1;
    return (next * iterations_ + entries - 1) / entries - 1;
  }

  // Returns the loss of a call. The error for one that is not finite has its step, or the last one
  // of the call if the losses that it returned are finite.
  double mean_loss(int64_t update) {
    const auto check = [&](double loss, int64_t step) {
      if (std::isfinite(loss)) return;
      const data::Element& item = source_.whole_item();
      fail(ErrorKind::kDiverged, "the loss of step {} is {}{}", step, number_text(loss),
           reason_of_loss(state_.programs().ir, data_, item, calls_.labels(item),
                          calls_.class_labels(item), step));
    };
    for (size_t i = 0; i < values_; ++i) check(report_.losses[i], update + update_of(i));
    const double loss = call_loss_.total();
    check(loss, update + iterations_ - 1);
    return loss;
  }

  void compare_replicas() const {
    const auto found = state_.programs().session.find_replica_difference();
    if (!found) return;
    fail(ErrorKind::kDiverged,
         "variable '{}' differs between replicas {} and {} after step {}; its gradient or new "
         "value must be reduced over the replicas",
         found->path, found->replica, found->other, state_.updates() - 1);
  }

  // Compares the first prediction with labels that the call returned, of the last samples.
  std::optional<double> accuracy_of(const data::Element& item) const {
    const auto& all = calls_.labelled();
    const auto found = std::find_if(all.begin(), all.end(), [](auto& r) { return !r.regression; });
    if (found == all.end()) return std::nullopt;
    const ModelCalls::LabelledResult& result = *found;
    const HostTensor* const labels = calls_.labels(item, result);
    if (labels == nullptr) return std::nullopt;
    const HostTensor& prediction = calls_.arrays()[result.index];
    const int64_t rows = labelled_rows(prediction);
    require(labels->elements() >= rows, "fit: labels must be one for each of {} rows, got {}", rows,
            to_string(labels->spec()));
    LabelCounts counts;
    counts.add(prediction, labels->as<int32_t>().last(static_cast<size_t>(rows)),
               result.ignore_index);
    return counts.percentage();
  }

  internal::ModelState& state_;
  TrainingModel& model_;
  DataLoader& data_;
  const FitOptions& options_;
  const ModelCalls& calls_;
  const Training& training_;
  const CallLoss call_loss_;
  TrainingItems source_;
  int64_t iterations_;
  int64_t written_ = 1;           ///< Entries of a loss that the program writes in a call.
  ModelCalls::Taken taken_;       ///< Entries that the output names.
  size_t values_ = 0;             ///< Number of those.
  std::optional<int64_t> items_;  ///< Items of an epoch, if they are known.
  int64_t total_ = 0;             ///< Calls in all.
  CallReport report_;
  FitResult result_;
  std::optional<TrainingLog> log_;          ///< In the process that writes it.
  const Evaluation* validation_ = nullptr;  ///< Made after the last call; null: none.
  double call_seconds_ = 0;                 ///< Time of the last call.
  Clock::time_point logged_;                ///< End of the last call, or the begin of the epoch.
};

FitResult fit(TrainingModel& model, DataLoader& data, const FitOptions& options) {
  internal::ModelState& state = internal::ModelAccess::state(model);
  const auto lock = state.next_fit();
  compile(model, model.is_compiled(), options.show);
  return Fit(state, model, data, options).run();
}

FitResult fit(TrainingModel& model, const data::Dataset& dataset, const FitOptions& options) {
  compile(model, model.is_compiled(), options.show);
  DataLoader loader(
      model.options(), dataset,
      {.batch_size = model.call_size().micro_batch,
       .shuffle = dataset.size() == data::kForever ? data::Shuffle::kNo : data::Shuffle::kYes,
       .seed = model.options().seed});
  return fit(model, loader, options);
}

}  // namespace sluice::train
