#include <algorithm>
#include <chrono>
#include <utility>

#include "sluice/base/numbers/slices.h"
#include "sluice/train/fit.h"
#include "sluice/train/model_state.h"
#include "sluice/train/run/finite.h"
#include "sluice/train/run/label_counts.h"
#include "sluice/train/run/prediction_losses.h"
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
      : calls_(calls), counts_(calls.labelled().size()) {}

  // Compares the predictions of a call. The first `rows` samples of `item` count; the first one is
  // sample `first` of the dataset. Returns the number of samples whose predictions were returned.
  int64_t add(const data::Element& item, const data::Element& results, int64_t rows,
              int64_t first) {
    const int64_t batch = calls_.size().samples();
    int64_t returned = rows;
    const std::vector<ClassLabels> class_labels = calls_.class_labels(item);
    for (size_t i = 0; i < results.arrays.size(); ++i) {
      const HostTensor& prediction = results.arrays[i];
      if (!is_labelled(i) && is_float(prediction.dtype()) && prediction.shape().rank() > 0 &&
          prediction.shape()[0] == batch)
        check_finite_rows(calls_.names()[i], prediction, {rows, first, item}, class_labels);
    }
    for (size_t i = 0; i < counts_.size(); ++i) {
      const ModelCalls::LabelledResult& result = calls_.labelled()[i];
      const HostTensor* const labels = calls_.labels(item, result.labels);
      if (labels == nullptr) continue;
      const int64_t compared =
          compare(results.arrays[result.index], {rows, first, item}, *labels, i);
      if (i == 0) returned = compared;
    }
    return returned;
  }

  void set(Evaluation& evaluation) const {
    for (size_t i = 0; i < counts_.size(); ++i) {
      const std::optional<double> percentage = counts_[i].percentage();
      if (i == 0) evaluation.accuracy = percentage;
      if (percentage)
        evaluation.accuracies.emplace_back(calls_.names()[calls_.labelled()[i].index], *percentage);
    }
  }

 private:
  bool is_labelled(size_t result) const {
    const auto& all = calls_.labelled();
    return std::any_of(all.begin(), all.end(), [&](const auto& l) { return l.index == result; });
  }

  // `rows`: the samples that count. The prediction may be that of the last samples alone.
  int64_t compare(const HostTensor& prediction, const PredictedRows& rows, const HostTensor& labels,
                  size_t i) {
    const ModelCalls::LabelledResult& result = calls_.labelled()[i];
    const std::string& name = calls_.names()[result.index];
    const int64_t batch = calls_.size().samples(), all = labelled_rows(prediction);
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
    counts_[i].add(prediction, Slices(labels.as<int32_t>(), batch).range(begin, end - begin),
                   result.ignore_index);
    return end - begin;
  }

  const ModelCalls& calls_;
  std::vector<LabelCounts> counts_;
};

}  // namespace

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
  labelled.set(result);
  losses.set(result);
  result.dropped = data.samples().value_or(result.samples) - result.samples;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace sluice::train
