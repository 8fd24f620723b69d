#include "sluice/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/data/loader.h"
#include "sluice/train/step_arrays.h"

namespace sluice::train {
namespace {

constexpr size_t kReservedLosses = 1 << 20;

const H2dStream& images_of(const std::vector<H2dStream>& fields) {
  require(!fields.empty(), "trainer: the network must read a field with images, got none");
  return fields[0];
}

int64_t batch_of(const TensorSpec& input) {
  require(input.shape.rank() >= 1, "trainer: the model's input must have a batch axis, got {}",
          to_string(input));
  return input.shape[0];
}

// The samples of a batch whose largest logit is that of their class.
int64_t count_right(const HostTensor& logits, const std::vector<int32_t>& labels, int64_t samples) {
  const auto scores = logits.as<float>();
  const size_t classes = scores.size() / labels.size();
  int64_t right = 0;
  for (size_t i = 0; i < static_cast<size_t>(samples); ++i) {
    const auto row = scores.subspan(i * classes, classes);
    const auto best = std::max_element(row.begin(), row.end()) - row.begin();
    right += best == labels[i];
  }
  return right;
}

// The mean loss of a step. Error{kDiverged} if a loss is not finite.
double mean_loss(std::span<const float> losses, int64_t step) {
  double mean = 0;
  for (const float loss : losses) {
    if (!std::isfinite(loss)) fail(ErrorKind::kDiverged, "the loss of step {} is {}", step, loss);
    mean += static_cast<double>(loss) / static_cast<double>(losses.size());
  }
  return mean;
}

}  // namespace

Trainer::Trainer(const Network& network, nn::Optimizer optimizer, const StepOptions& step,
                 const SessionOptions& session, int replicas)
    : ir_(replicas),
      training_(build_training(ir_, network, std::move(optimizer), step)),
      session_(ir_, session) {}

Trainer::Trainer(const Ir& ir, Training training, const SessionOptions& session)
    : ir_(ir), training_(std::move(training)), session_(ir_, session) {}

FitLength Trainer::length(const data::Dataset& samples, const FitOptions& options) const {
  require(options.epochs >= 0, "fit: epochs must be at least 0, got {}", options.epochs);
  require(!options.steps || *options.steps >= 0, "fit: steps must be at least 0, got {}",
          options.steps.value_or(0));
  const int64_t batch =
      checked_mul(checked_mul(batch_of(images_of(training_.fields).spec), training_.accumulate),
                  training_.replicas);
  const data::DataLoader loader(samples, {.batch = batch, .shuffle = false});
  return {.samples_per_step = batch,
          .steps_per_epoch = loader.batches(),
          .dropped = loader.dropped(),
          .steps = options.steps ? *options.steps : checked_mul(options.epochs, loader.batches())};
}

FitResult Trainer::fit(const data::Dataset& samples, const FitOptions& options) {
  require(training_.learning_rate.has_value() == options.schedule.has_value(), "fit: {}",
          options.schedule ? "a schedule requires StepOptions::learning_rate = "
                             "StreamedRate{}"
                           : "a program with a StreamedRate requires a schedule");
  const FitLength length = this->length(samples, options);
  data::DataLoader loader(samples, {.batch = length.samples_per_step, .seed = options.seed});
  StepArrays arrays(training_);
  require(arrays.fields.size() == 2 && arrays.losses.size() == 1,
          "fit: the network must have two fields, images and labels, and one loss, got {} and {}",
          arrays.fields.size(), arrays.losses.size());
  Binding binding = session_.bind(arrays.inputs(training_), arrays.outputs(training_), "train");
  const ArrayView inputs = arrays.fields[0];
  const ArrayView labels = arrays.fields[1];
  const auto losses = arrays.losses[0].as<float>();
  FitResult result;
  result.losses.reserve(
      std::min(kReservedLosses, losses.size() * static_cast<size_t>(length.steps)));
  const auto begin = std::chrono::steady_clock::now();
  while (result.steps < length.steps && !result.stopped) {
    const int64_t epoch = updates_ / length.steps_per_epoch;
    if (epoch != loader.epoch()) loader.start_epoch(epoch);
    loader.fill(updates_ % length.steps_per_epoch, inputs, labels);
    arrays.seed(options.seed, updates_);
    if (options.schedule) arrays.set_learning_rate(options.schedule->at(updates_));
    session_.run_into(binding);
    ++updates_;
    ++result.steps;
    result.losses.insert(result.losses.end(), losses.begin(), losses.end());
    result.loss = mean_loss(losses, result.steps - 1);
    if (options.after_step) result.stopped = !options.after_step(result.steps, result.loss);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

int64_t Trainer::eval_samples() const {
  return checked_mul(batch_of(images_of(training_.eval_fields).spec), training_.replicas);
}

double Trainer::evaluate(const data::Dataset& samples,
                         const std::function<void(int64_t done)>& after_batch) {
  const int64_t batch = eval_samples();
  const data::DataLoader loader(samples, {.batch = 1, .shuffle = false});
  const auto array = [&](const TensorSpec& entry) {
    return HostTensor({entries_shape(entry.shape, 1, training_.replicas), entry.dtype, {}});
  };
  const H2dStream& images = images_of(training_.eval_fields);
  const D2hStream& scores = training_.eval_predictions[0];
  HostTensor inputs = array(images.spec);
  HostTensor logits = array(scores.spec);
  std::vector<int32_t> labels(static_cast<size_t>(batch));
  const std::vector<int64_t>& dims = images.spec.shape.dims();
  const TensorSpec sample{Shape({dims.begin() + 1, dims.end()}), images.spec.dtype, {}};
  const size_t sample_bytes = inputs.bytes().size() / labels.size();
  Binding binding = session_.bind({{images, inputs}}, {{scores, logits}}, "eval");
  int64_t right = 0;
  for (int64_t first = 0; first < samples.size(); first += batch) {
    for (size_t i = 0; i < labels.size(); ++i) {
      loader.fill((first + static_cast<int64_t>(i)) % samples.size(),
                  {sample, &inputs.bytes()[i * sample_bytes]}, {{{}, i32, {}}, &labels[i]});
    }
    session_.run_into(binding);
    right += count_right(logits, labels, std::min(batch, samples.size() - first));
    if (after_batch) after_batch(first / batch + 1);
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(samples.size());
}

}  // namespace sluice::train
