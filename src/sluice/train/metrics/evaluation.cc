#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "sluice/base/numbers/slices.h"
#include "sluice/train/fit.h"
#include "sluice/train/metrics/label_counts.h"
#include "sluice/train/metrics/prediction_losses.h"
#include "sluice/train/model_state.h"
#include "sluice/train/run/finite.h"
#include "sluice/train/run/progress.h"
#include "sluice/train/step_arrays.h"

namespace sluice::train {

using internal::ModelCalls;

namespace {

// A loader of all samples in their order.
DataLoader whole_loader(InferenceModel& model, const data::Dataset& dataset) {
  const CallSize size = model.call_size();
  Options options = model.options();
  options.device_iterations = size.device_iterations;
  options.replicas = static_cast<int>(size.replicas);
  return DataLoader(options, dataset,
                    {.batch_size = size.micro_batch, .remainder = data::Remainder::kKeep});
}

// An epoch of calls that infer.
struct Pass {
  DataLoader& data;
  int64_t batch;  // Samples of a call.
  Show show;
  const std::function<void()>& after_call;
};

// Calls use(item of the samples of a call, number of samples that count) for each item of an epoch.
template <typename Use>
void each_item(const Pass& pass, const char* text, const Use& use) {
  const auto& [data, batch, show, after_call] = pass;
  data.start_epoch(0);
  ProgressBar bar(data.items().value_or(0),
                  show == Show::kNo ? ProgressBar::Shown::kNo : ProgressBar::Shown::kYes);
  data::Element whole;  // A smaller item, completed.
  for (int64_t done = 1; const data::Element* item = data.next(); ++done) {
    const int64_t rows = item->arrays[0].shape()[0];
    if (rows < batch) whole = completed(*item, batch);
    use(rows < batch ? whole : *item, rows);
    if (after_call) after_call();
    if (bar.is_due(done)) bar.show(done, text);
  }
}

// Compares the predictions of an evaluation with their labels.
class LabelledPredictions {
 public:
  explicit LabelledPredictions(const ModelCalls& calls)
      : calls_(calls), counts_(calls.labelled().size()), errors_(counts_.size()) {}

  // Compares the predictions of a call. The first `rows` samples of `item` count; the first one is
  // sample `first` of the dataset. Returns the number of samples whose predictions were returned.
  int64_t add(const data::Element& item, const data::Element& results, int64_t rows,
              int64_t first) {
    const int64_t batch = calls_.size().samples();
    int64_t returned = rows;
    const std::vector<ClassLabels> class_labels = calls_.class_labels(item);
    for (size_t i = 0; i < results.arrays.size(); ++i) {
      const HostTensor& prediction = results.arrays[i];
      if (!has_labels(i, item) && is_float(prediction.dtype()) && prediction.shape().rank() > 0 &&
          prediction.shape()[0] == batch)
        check_finite_rows(calls_.names()[i], prediction, {rows, first, item}, class_labels);
    }
    for (size_t i = 0; i < counts_.size(); ++i) {
      const ModelCalls::LabelledResult& result = calls_.labelled()[i];
      const HostTensor* const labels = calls_.labels(item, result);
      if (labels == nullptr) continue;
      const int64_t compared =
          compare(results.arrays[result.index], {rows, first, item}, *labels, i);
      if (i == 0) returned = compared;
    }
    return returned;
  }

  void add_metrics(Evaluation& evaluation) const {
    NamedValues accuracies, top, absolute, squared;
    for (size_t i = 0; i < counts_.size(); ++i) {
      const ModelCalls::LabelledResult& result = calls_.labelled()[i];
      const std::string& name = calls_.names()[result.index];
      if (result.regression) {
        absolute.emplace_back(name, errors_[i].mean_absolute());
        squared.emplace_back(name, errors_[i].mean_squared());
        continue;
      }
      accuracies.emplace_back(name, counts_[i].percentage());
      if (counts_[i].has_top()) top.emplace_back(name, counts_[i].top_percentage());
    }
    const Metric percentage{.better = Metric::Better::kHigher, .percent = true};
    add_metric(evaluation, "accuracy", accuracies, percentage);
    add_metric(evaluation, fmt::format("top{}_accuracy", kTopClasses), top, percentage);
    add_metric(evaluation, "mean_absolute_error", absolute);
    add_metric(evaluation, "mean_squared_error", squared);
  }

 private:
  // Whether compare() checks a prediction.
  bool has_labels(size_t result, const data::Element& item) const {
    const auto& all = calls_.labelled();
    return std::any_of(all.begin(), all.end(), [&](const auto& l) {
      return l.index == result && calls_.labels(item, l) != nullptr;
    });
  }

  // Refuses floating-point labels with NaN: their errors are not defined.
  static void check_labels(const std::string& name, const HostTensor& labels,
                           const PredictedRows& rows) {
    const int64_t of_sample = labels.elements() / labels.shape()[0];
    const std::vector<double> values = labels.to_doubles();
    for (int64_t i = rows.offset * of_sample; i < (rows.offset + rows.count) * of_sample; ++i) {
      if (!std::isnan(at(values, i))) continue;
      fail(ErrorKind::kDiverged, "the label of prediction '{}' in row {} is nan", name,
           rows.first + i / of_sample - rows.offset);
    }
  }

  // `rows`: the samples that count. The prediction may be that of the last samples alone.
  int64_t compare(const HostTensor& prediction, const PredictedRows& rows, const HostTensor& labels,
                  size_t i) {
    const ModelCalls::LabelledResult& result = calls_.labelled()[i];
    const std::string& name = calls_.names()[result.index];
    const int64_t batch = calls_.size().samples();
    const int64_t all = result.regression ? prediction.elements() : labelled_rows(prediction);
    const int64_t of_sample = labels.elements() / batch;  // Labels of a sample.
    const int64_t samples = of_sample == 0 ? 0 : all / of_sample;
    require(samples * of_sample == all && samples >= 1 && samples <= batch,
            "evaluate: prediction '{}' {} must have a row for each label, got labels {}", name,
            to_string(prediction.spec()), to_string(labels.spec()));
    // The first sample with a prediction, and the end of those that count.
    const int64_t begin = batch - samples, end = std::max(begin, rows.count);
    check_finite_rows(name, prediction.reshaped({samples, prediction.elements() / samples}),
                      {end - begin, rows.first + begin, rows.inputs, begin},
                      calls_.class_labels(rows.inputs));
    const int64_t count = end - begin;
    if (result.regression) {
      errors_[i].add(prediction, labels, begin * of_sample, count * of_sample);
      check_labels(name, labels, {count, rows.first + begin, rows.inputs, begin});
    } else {
      counts_[i].add(prediction, Slices(labels.as<int32_t>(), batch).range(begin, count),
                     result.ignore_index);
    }
    return count;
  }

  const ModelCalls& calls_;
  std::vector<LabelCounts> counts_;  ///< Indexed as calls_.labelled().
  std::vector<LabelErrors> errors_;  ///< Likewise.
};

}  // namespace

bool Metric::is_better_than(double other) const {
  if (std::isnan(value) || std::isnan(other)) return std::isnan(other) && !std::isnan(value);
  return better == Better::kHigher ? value > other : value < other;
}

std::optional<double> Evaluation::operator[](std::string_view name) const {
  for (const Metric& m : metrics) {
    if (m.name == name) return m.value;
  }
  return std::nullopt;
}

const Metric& Evaluation::metric(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const Metric& m : metrics) {
    if (m.name == name) return m;
    names.push_back(m.name);
  }
  fail(ErrorKind::kUsage, "evaluation: a metric must be one of {}, got '{}'",
       fmt::join(names, ", "), name);
}

std::string to_string(const Evaluation& evaluation) {
  std::string text = "Accuracy on test set: none";
  std::vector<std::string> several;
  for (const Metric& m : evaluation.metrics) {
    constexpr std::string_view kPrefix = "accuracy/";
    if (m.name.starts_with(kPrefix))
      several.push_back(fmt::format("{:.2f}% ({})", m.value, m.name.substr(kPrefix.size())));
  }
  if (!several.empty()) {
    text = fmt::format("Accuracy on test set: {}", fmt::join(several, " and "));
  } else if (const auto accuracy = evaluation["accuracy"]) {
    text = fmt::format("Accuracy on test set: {:.2f}%", *accuracy);
  } else if (const auto loss = evaluation["loss"]) {
    text = fmt::format("Loss on test set: {:.6g}", *loss);
  }
  return fmt::format("{} ({} samples, {} dropped)", text, evaluation.samples, evaluation.dropped);
}

Evaluation evaluate(InferenceModel& model, const data::Dataset& dataset, Show show,
                    const std::function<void()>& after_call) {
  DataLoader loader = whole_loader(model, dataset);
  return evaluate(model, loader, show, after_call);
}

data::Element predict(InferenceModel& model, const data::Dataset& dataset, Show show,
                      const std::function<void()>& after_call) {
  DataLoader loader = whole_loader(model, dataset);
  internal::ModelState& state = internal::ModelAccess::state(model);
  const Options& options = state.inference_options();
  require(!options.output || options.output->mode == Output::Mode::kAll,
          "predict: the output of the model must be all");
  const std::optional<int64_t> samples = loader.samples();
  require(samples.has_value() && *samples != data::kForever,
          "predict: the dataset must have a known end; use take(n) or cache()");
  const int64_t batch = loader.call_size().samples();
  data::Element result;
  std::vector<size_t> indices;  // Indices of the predictions with a row for each sample.
  int64_t first = 0;
  const Pass pass{loader, batch, show, after_call};
  each_item(pass, "Prediction", [&](const data::Element& item, int64_t rows) {
    const data::Element part = state.infer(item);
    for (size_t i = 0; first == 0 && i < part.arrays.size(); ++i) {
      const TensorSpec& spec = part.arrays[i].spec();
      if (spec.shape.rank() == 0 || spec.shape[0] != batch) continue;
      std::vector<int64_t> dims = spec.shape.dims();
      dims[0] = *samples;
      indices.push_back(i);
      result.names.push_back(part.names[i]);
      result.arrays.emplace_back(TensorSpec{Shape(std::move(dims)), spec.dtype, {}});
    }
    for (size_t r = 0; r < indices.size(); ++r) {
      check_finite_rows(result.names[r], part.arrays[indices[r]], {rows, first, item}, {});
      const Slices from(part.arrays[indices[r]].bytes(), batch);
      const Slices to(result.arrays[r].bytes(), *samples);
      std::ranges::copy(from.range(0, rows), to.range(first, rows).begin());
    }
    first += rows;
  });
  require(!indices.empty(), "predict: a prediction must have a row for each sample, got none");
  return result;
}

Evaluation evaluate(InferenceModel& model, DataLoader& data, Show show,
                    const std::function<void()>& after_call) {
  model.compile();
  internal::ModelState& state = internal::ModelAccess::state(model);
  const ModelCalls& calls = state.calls(ModelCalls::Use::kInfer);
  calls.check_items("evaluate", data.call_size());
  const std::optional<int64_t> items = data.items();
  require(items != data::kForever, "evaluate: data must have an end, got none; use take(n)");
  Evaluation result;
  const auto begin = std::chrono::steady_clock::now();
  int64_t read = 0;  // Samples so far.
  PredictionLosses losses(state.network(), state.options().session.device,
                          calls.size().micro_batch);
  LabelledPredictions labelled(calls);
  const Pass pass{data, calls.size().samples(), show, after_call};
  each_item(pass, "Evaluation", [&](const data::Element& item, int64_t rows) {
    const data::Element results = state.infer(item);
    result.samples += labelled.add(item, results, rows, read);
    if (calls.returns_last()) losses.add(results, {rows, read, item}, calls.class_labels(item));
    read += rows;
  });
  losses.add_metrics(result);
  labelled.add_metrics(result);
  result.dropped = data.samples().value_or(result.samples) - result.samples;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace sluice::train
