#include "sluice/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/data/loader.h"
#include "sluice/train/devices.h"
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
int64_t count_right(const HostTensor& logits, std::span<const int32_t> labels, int64_t samples) {
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

// "'input', 'labels'".
template <typename Stream>
std::string names_of(const std::vector<Stream>& streams) {
  std::vector<std::string> names;
  for (const Stream& s : streams) names.push_back("'" + s.name + "'");
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// Returns the array of a stream.
const HostTensor& find_array(const std::vector<D2hStream>& streams,
                             const std::vector<HostTensor>& arrays, std::string_view name,
                             std::string_view kind) {
  for (size_t i = 0; i < streams.size(); ++i) {
    if (streams[i].name == name) return arrays[i];
  }
  fail(ErrorKind::kUsage, "fit: {} '{}' must be one that training returns, which are {}", kind,
       name, names_of(streams));
}

// Returns the index of the prediction with the scores of `samples` samples, if there is one.
std::optional<size_t> find_scores(const std::vector<D2hStream>& predictions, int64_t samples) {
  for (size_t i = 0; i < predictions.size(); ++i) {
    const TensorSpec& spec = predictions[i].spec;
    if (spec.dtype == f32 && spec.shape.rank() == 2 && spec.shape[0] == samples &&
        spec.shape[1] > 1)
      return i;
  }
  return std::nullopt;
}

void check_results(const Training& t) {
  require(t.fields.size() == 2, "fit: the network must read two fields, images and labels, got {}",
          names_of(t.fields));
  require(!t.losses.empty() && t.summed.empty(),
          "fit: the program must write the losses of each micro-batch, got {}; leave out "
          "outfeed_mask and accumulate_outputs",
          t.losses.empty() ? "none" : "sums");
  for (const D2hStream& loss : t.losses) {
    require(loss.spec.dtype == f32,
            "fit: loss '{}' must be float32, got {}; cast it with "
            "ops::cast()",
            loss.name, name_of(loss.spec.dtype));
  }
}

// Appends the losses of a step: the sums with their weights and, of several losses, each one.
void append_losses(const Training& t, const StepArrays& arrays, FitResult& result) {
  const size_t count = static_cast<size_t>(arrays.losses[0].spec().shape.elements());
  for (size_t m = 0; m < count; ++m) {
    double sum = 0;
    for (size_t i = 0; i < arrays.losses.size(); ++i)
      sum += t.loss_weights[i] * static_cast<double>(arrays.losses[i].as<float>()[m]);
    result.losses.push_back(static_cast<float>(sum));
  }
  if (arrays.losses.size() < 2) return;
  result.parts.resize(arrays.losses.size());
  for (size_t i = 0; i < arrays.losses.size(); ++i) {
    const auto values = arrays.losses[i].as<float>();
    result.parts[i].insert(result.parts[i].end(), values.begin(), values.end());
  }
}

// The mean loss of a run of `steps` steps that begins with step `first`. Error{kDiverged} if a loss
// is not finite.
double mean_loss(std::span<const float> losses, int64_t first, int64_t steps) {
  double mean = 0;
  for (const float& loss : losses) {
    if (!std::isfinite(loss)) {
      const auto step = (&loss - losses.data()) * steps / static_cast<int64_t>(losses.size());
      fail(ErrorKind::kDiverged, "the loss of step {} is {}; a smaller learning rate may help",
           first + step, loss);
    }
    mean += static_cast<double>(loss) / static_cast<double>(losses.size());
  }
  return mean;
}

// Error{kDiverged} if replicas hold different copies of a variable after a step.
void compare_replicas(const Session& session, int64_t step) {
  const auto found = session.find_replica_difference();
  if (!found) return;
  fail(ErrorKind::kDiverged,
       "variable '{}' differs between replicas {} and {} after step {}; its gradient or new value "
       "must be reduced over the replicas",
       found->path, found->replica, found->other, step);
}

}  // namespace

Trainer::Trainer(const Network& network, nn::Optimizer optimizer, const StepOptions& step,
                 const SessionOptions& session, int replicas)
    : ir_(replicas),
      training_(build_training_for(session, ir_, network, optimizer, step)),
      session_(open_session(ir_, training_, session)) {}

Trainer::Trainer(const Ir& ir, Training training, const SessionOptions& session)
    : ir_(ir), training_(std::move(training)), session_(open_session(ir_, training_, session)) {}

const HostTensor& StepReport::loss_of(std::string_view name) const {
  return find_array(training_.losses, arrays_.losses, name, "loss");
}

const HostTensor& StepReport::prediction(std::string_view name) const {
  return find_array(training_.predictions, arrays_.predictions, name, "prediction");
}

FitLength Trainer::length(const data::Samples& samples, const FitOptions& options) const {
  require(options.epochs >= 0, "fit: epochs must be at least 0, got {}", options.epochs);
  require(!options.steps || *options.steps >= 0, "fit: steps must be at least 0, got {}",
          options.steps.value_or(0));
  const int64_t repeat = training_.repeat;
  require(options.steps.value_or(0) % repeat == 0,
          "fit: steps must be a multiple of the {} steps of a run, got {}", repeat,
          options.steps.value_or(0));
  const int64_t batch =
      checked_mul(checked_mul(batch_of(images_of(training_.fields).spec), training_.accumulate),
                  training_.replicas);
  const data::DataLoader loader(samples, {.batch = checked_mul(batch, repeat), .shuffle = false});
  const int64_t steps_per_epoch = loader.batches() * repeat;
  return {.samples_per_step = batch,
          .steps_per_epoch = steps_per_epoch,
          .dropped = loader.dropped(),
          .steps = options.steps ? *options.steps : checked_mul(options.epochs, steps_per_epoch)};
}

FitResult Trainer::fit(const data::Samples& samples, const FitOptions& options) {
  try {
    return fit_steps(samples, options);
  } catch (Error& e) {
    note_stages(training_, e);
    throw;
  }
}

FitResult Trainer::fit_steps(const data::Samples& samples, const FitOptions& options) {
  require(training_.inputs.empty(),
          "fit: the network must have no fields that are given once; call Session::run");
  require(training_.learning_rate.has_value() == options.schedule.has_value(), "fit: {}",
          options.schedule ? "a schedule requires StepOptions::learning_rate = "
                             "StreamedRate{}"
                           : "a program with a StreamedRate requires a schedule");
  require(!options.check_replicas || *options.check_replicas >= 1,
          "fit: check_replicas must be at least 1, got {}", options.check_replicas.value_or(1));
  const FitLength length = this->length(samples, options);
  const int64_t repeat = training_.repeat;
  const int64_t samples_of_run = checked_mul(length.samples_per_step, repeat);
  data::DataLoader loader(samples, {.batch = samples_of_run, .seed = options.seed});
  check_results(training_);
  StepArrays arrays(training_);
  Binding binding = session_.bind(arrays.inputs(training_), arrays.outputs(training_), "train");
  const ArrayView inputs = arrays.fields[0];
  const ArrayView labels = arrays.fields[1];
  const auto scores = labels.spec.dtype == i32
                          ? find_scores(training_.predictions, training_.fields[0].spec.shape[0])
                          : std::nullopt;
  const auto values = static_cast<size_t>(arrays.losses[0].spec().shape.elements());
  FitResult result;
  StepReport step(training_, arrays);
  result.losses.reserve(std::min(kReservedLosses, values * static_cast<size_t>(length.steps)));
  const auto begin = std::chrono::steady_clock::now();
  while (result.steps < length.steps && !result.stopped) {
    const int64_t epoch = updates_ / length.steps_per_epoch;
    if (epoch != loader.epoch()) loader.start_epoch(epoch);
    loader.fill(updates_ % length.steps_per_epoch / repeat, inputs, labels);
    arrays.seed(options.seed, updates_);
    if (options.schedule) arrays.set_learning_rate(options.schedule->at(updates_));
    session_.run_into(binding);
    append_losses(training_, arrays, result);
    result.loss = mean_loss(std::span(result.losses).last(values), result.steps, repeat);
    updates_ += repeat;
    result.steps += repeat;
    if (options.check_replicas && result.steps % *options.check_replicas < repeat)
      compare_replicas(session_, result.steps - 1);
    if (scores) {
      const int64_t right =
          count_right(arrays.predictions[*scores], arrays.fields[1].as<int32_t>(), samples_of_run);
      result.accuracy = 100.0 * static_cast<double>(right) / static_cast<double>(samples_of_run);
    }
    step.done = result.steps;
    step.loss = result.loss;
    step.accuracy = result.accuracy;
    if (options.after_step) result.stopped = !options.after_step(step);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

int64_t Trainer::eval_samples() const {
  return checked_mul(batch_of(images_of(training_.eval_fields).spec), training_.replicas);
}

double Trainer::evaluate(const data::Samples& samples,
                         const std::function<void(int64_t done)>& after_batch) {
  const int64_t batch = eval_samples();
  require(
      samples.labels.dtype() == i32,
      "evaluate: labels must be classes, int32, got {}; compare the predictions with the targets",
      name_of(samples.labels.dtype()));
  const data::DataLoader loader(samples, {.batch = 1, .shuffle = false});
  const auto array = [&](const TensorSpec& entry) {
    return HostTensor({entries_shape(entry.shape, 1, training_.replicas), entry.dtype, {}});
  };
  const H2dStream& images = images_of(training_.eval_fields);
  require(training_.eval_fields.size() == 1,
          "evaluate: the network must read one field, images, in evaluation, got {}",
          names_of(training_.eval_fields));
  const auto scores = find_scores(training_.eval_predictions, images.spec.shape[0]);
  require(scores.has_value(),
          "evaluate: a prediction must be float32 of shape (samples, classes), got {}",
          names_of(training_.eval_predictions));
  HostTensor inputs = array(images.spec);
  std::vector<HostTensor> predictions;
  std::vector<StreamOutput> outputs;
  for (const D2hStream& s : training_.eval_predictions) predictions.push_back(array(s.spec));
  for (size_t i = 0; i < predictions.size(); ++i)
    outputs.push_back({training_.eval_predictions[i], predictions[i]});
  std::vector<int32_t> labels(static_cast<size_t>(batch));
  const std::vector<int64_t>& dims = images.spec.shape.dims();
  const TensorSpec sample{Shape({dims.begin() + 1, dims.end()}), images.spec.dtype, {}};
  const size_t sample_bytes = inputs.bytes().size() / labels.size();
  Binding binding = session_.bind({{images, inputs}}, outputs, "eval");
  int64_t right = 0;
  for (int64_t first = 0; first < samples.size(); first += batch) {
    for (size_t i = 0; i < labels.size(); ++i) {
      loader.fill((first + static_cast<int64_t>(i)) % samples.size(),
                  {sample, &inputs.bytes()[i * sample_bytes]}, {{{}, i32, {}}, &labels[i]});
    }
    session_.run_into(binding);
    right += count_right(predictions[*scores], labels, std::min(batch, samples.size() - first));
    if (after_batch) after_batch(first / batch + 1);
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(samples.size());
}

}  // namespace sluice::train
