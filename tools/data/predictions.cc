#include "tools/data/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "sluice/base/error.h"

namespace sluice::tool {
namespace {

// Whether a prediction of `samples` samples has a row for each of them.
bool has_rows(const TensorSpec& spec, int64_t samples) {
  return spec.shape.rank() >= 1 && spec.shape[0] == samples;
}

// The name that the network gives to a prediction. Its stream is "eval_…" if training returns a
// prediction of that name, too.
std::string name_in_network(const train::Training& t, const std::string& stream) {
  constexpr std::string_view kPrefix = "eval_";
  for (const D2hStream& s : t.predictions) {
    if (stream == std::string(kPrefix) + s.name) return s.name;
  }
  return stream;
}

// The spec with another number of rows.
TensorSpec with_rows(const TensorSpec& spec, int64_t rows) {
  std::vector<int64_t> dims = spec.shape.dims();
  dims[0] = rows;
  return {Shape(std::move(dims)), spec.dtype, {}};
}

// The program's arrays for one batch.
struct Batch {
  HostTensor inputs;
  std::vector<HostTensor> predictions;
};

Batch arrays_of(const train::Training& t) {
  const auto array = [&](const TensorSpec& entry) {
    return HostTensor({entries_shape(entry.shape, 1, t.replicas), entry.dtype, {}});
  };
  Batch batch{array(t.eval_fields[0].spec), {}};
  for (const D2hStream& s : t.eval_predictions) batch.predictions.push_back(array(s.spec));
  return batch;
}

// Copies samples `first`, `first` + 1, … of `inputs` to `batch`; the first sample follows the last.
void fill(const HostTensor& inputs, int64_t first, int64_t samples, HostTensor& batch) {
  const int64_t count = inputs.shape()[0];
  const size_t bytes = batch.bytes().size() / static_cast<size_t>(samples);
  for (int64_t i = 0; i < samples; ++i) {
    const auto from = static_cast<size_t>((first + i) % count) * bytes;
    std::memcpy(&batch.bytes()[static_cast<size_t>(i) * bytes], &inputs.bytes()[from], bytes);
  }
}

}  // namespace

std::vector<NamedArray> predict(train::Trainer& trainer, const HostTensor& inputs,
                                const AfterBatch& after_batch) {
  const train::Training& t = trainer.training();
  require(t.eval_fields.size() == 1 && t.eval_fields[0].spec.dtype == f32,
          "predict: the model must read one float32 field, got {} fields", t.eval_fields.size());
  const int64_t count = inputs.shape()[0];
  const int64_t batch_size = trainer.eval_samples();
  const int64_t of_replica = t.eval_fields[0].spec.shape[0];
  Batch batch = arrays_of(t);
  require(count > 0 && inputs.elements() / count == batch.inputs.elements() / batch_size,
          "--dataset: samples must have {} numbers, as the model's input, got {} samples of {}",
          batch.inputs.elements() / batch_size, count,
          inputs.elements() / std::max<int64_t>(count, 1));
  std::vector<StreamOutput> outputs;
  std::vector<NamedArray> results;
  std::vector<size_t> kept;  // Index of the prediction of each result.
  for (size_t i = 0; i < t.eval_predictions.size(); ++i) {
    const D2hStream& stream = t.eval_predictions[i];
    outputs.push_back({stream, batch.predictions[i]});
    if (!has_rows(stream.spec, of_replica)) continue;
    results.push_back({name_in_network(t, stream.name), HostTensor(with_rows(stream.spec, count))});
    kept.push_back(i);
  }
  require(!results.empty(), "predict: a prediction must have a row for each sample, got none");
  Binding binding = trainer.session().bind({{t.eval_fields[0], batch.inputs}}, outputs, "eval");
  for (int64_t first = 0; first < count; first += batch_size) {
    fill(inputs, first, batch_size, batch.inputs);
    trainer.session().run_into(binding);
    const int64_t rows = std::min(batch_size, count - first);
    for (size_t r = 0; r < results.size(); ++r) {
      const auto from = std::as_const(batch.predictions[kept[r]]).bytes();
      const size_t bytes = from.size() / static_cast<size_t>(batch_size);
      std::memcpy(results[r].array.bytes().data() + static_cast<size_t>(first) * bytes, from.data(),
                  static_cast<size_t>(rows) * bytes);
    }
    if (after_batch) after_batch(first / batch_size + 1);
  }
  return results;
}

HostTensor classes_of(const HostTensor& scores) {
  HostTensor classes({{scores.shape()[0]}, i32, {}});
  const auto all = scores.as<float>();
  const auto columns = static_cast<size_t>(scores.shape()[1]);
  for (size_t i = 0; i < classes.as<int32_t>().size(); ++i) {
    const auto row = all.subspan(i * columns, columns);
    classes.as<int32_t>()[i] =
        static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
  }
  return classes;
}

std::string TestResult::key() const {
  return loss == models::Loss::kCrossEntropy ? "accuracy" : "mean_squared_error";
}

std::string TestResult::text() const {
  return loss == models::Loss::kCrossEntropy ? fmt::format("accuracy {:.2f} %", value)
                                             : fmt::format("mean squared error {:.6g}", value);
}

TestResult test(train::Trainer& trainer, models::Loss loss, const data::Samples& samples,
                const AfterBatch& after_batch) {
  if (loss == models::Loss::kCrossEntropy) return {trainer.evaluate(samples, after_batch), loss};
  const std::vector<NamedArray> predictions = predict(trainer, samples.images, after_batch);
  const auto found = predictions[0].array.as<float>();
  const auto targets = samples.labels.as<float>();
  SLUICE_CHECK(found.size() == targets.size());
  double sum = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = static_cast<double>(found[i]) - static_cast<double>(targets[i]);
    sum += difference * difference;
  }
  return {sum / static_cast<double>(found.size()), loss};
}

}  // namespace sluice::tool
