#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <optional>

#include "sluice/base/checked.h"
#include "sluice/base/hash.h"
#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"
#include "sluice/data/loader.h"
#include "sluice/models/model.h"
#include "sluice/models/step_arrays.h"
#include "tools/json_record.h"
#include "tools/programs.h"
#include "tools/progress.h"
#include "tools/run_digest.h"
#include "tools/stop_signal.h"

namespace sluice::tool {
namespace {

constexpr int64_t kSyntheticTrain = 20000;
constexpr int64_t kSyntheticTest = 4000;
constexpr size_t kReservedLosses = 1 << 20;

data::Dataset find_samples(const ToolOptions& o, data::Split split) {
  const models::Data& samples = *models::find_model(o.model).data;
  const auto folder = o.synthetic ? std::nullopt : samples.find(o.data);
  if (folder) return samples.load(*folder, split);
  const bool train = split == data::Split::kTrain;
  if (train && o.log_level != "error") {
    sys::print_stderr("{}: using generated {}\n", o.synthetic ? "--synthetic" : samples.missing,
                      samples.name);
  }
  return samples.generate(train ? kSyntheticTrain : kSyntheticTest, train ? 1 : 2);
}

// Those of all processes, which share out the samples of a step.
data::Dataset load_samples(const ToolOptions& o, Session& session, data::Split split) {
  data::Dataset samples = find_samples(o, split);
  if (session.agreement().size() > 1) {
    Digest digest;
    digest.add(samples.images.bytes());
    digest.add(samples.labels.bytes());
    session.agreement().require_same(models::find_model(o.model).data->name, digest.hex());
  }
  return samples;
}

// Percentage of the test samples whose largest logit is the label's. The last batch is filled with
// the first samples again.
double evaluate(Session& session, const Programs& programs, const ToolOptions& o,
                const data::Dataset& test) {
  const int64_t batch = checked_mul(o.sizes.eval_batch, o.replicas);
  const data::DataLoader samples(test, {.batch = 1, .shuffle = false});
  const train::Training& t = programs.training;
  const auto array = [&](const TensorSpec& entry) {
    return HostTensor({entries_shape(entry.shape, 1, o.replicas), entry.dtype, {}});
  };
  HostTensor inputs = array(t.eval_input.spec), logits = array(t.logits.spec);
  std::vector<int32_t> labels(static_cast<size_t>(batch));
  const std::vector<int64_t>& dims = t.eval_input.spec.shape.dims();
  const TensorSpec sample{Shape({dims.begin() + 1, dims.end()}), t.eval_input.spec.dtype, {}};
  const auto sample_bytes = inputs.bytes().size() / labels.size();
  const auto classes = static_cast<size_t>(logits.elements()) / labels.size();
  Binding binding = session.bind({{t.eval_input, inputs}}, {{t.logits, logits}}, "eval");
  int64_t right = 0;
  for (int64_t first = 0; first < test.size(); first += batch) {
    for (size_t i = 0; i < labels.size(); ++i) {
      samples.fill((first + static_cast<int64_t>(i)) % test.size(),
                   {sample, &inputs.bytes()[i * sample_bytes]}, {{{}, i32, {}}, &labels[i]});
    }
    session.run_into(binding);
    const auto scores = logits.as<float>();
    for (int64_t i = 0; i < std::min(batch, test.size() - first); ++i) {
      const auto row = scores.subspan(static_cast<size_t>(i) * classes, classes);
      const auto best = std::max_element(row.begin(), row.end()) - row.begin();
      right += best == labels[static_cast<size_t>(i)];
    }
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(test.size());
}

struct Outcome {
  std::vector<float> losses;  ///< Of every micro-batch, of each replica in turn.
  int64_t steps = 0;
  double seconds = 0;
  bool stopped = false;
};

Outcome train(Session& session, const Programs& programs, const ToolOptions& o,
              const data::Dataset& all) {
  const int64_t samples = samples_of_step(o);
  data::DataLoader loader(all, {.batch = samples, .seed = o.seed});
  const int64_t per_epoch = loader.batches();
  const int64_t steps = o.steps ? *o.steps : checked_mul(o.epochs, per_epoch);
  if (o.log_level != "error") {
    const std::string replicas = o.replicas == 1 ? "" : fmt::format(" x {}", o.replicas);
    sys::print_stderr("{} x {}{} = {} samples a step, {} steps an epoch, {} samples dropped\n",
                      o.sizes.micro_batch, o.accumulate, replicas, samples, per_epoch,
                      loader.dropped());
  }
  models::StepArrays arrays(programs.training, o.accumulate, o.replicas);
  Binding binding = session.bind(arrays.inputs(programs.training),
                                 {{programs.training.loss, arrays.losses}}, "train");
  const ArrayView inputs = arrays.input;
  const ArrayView truths = arrays.labels;
  Outcome outcome;
  const auto losses = arrays.losses.as<float>();
  outcome.losses.reserve(std::min(kReservedLosses, losses.size() * static_cast<size_t>(steps)));
  Progress progress("train", steps, samples, o.log_level);
  for (int64_t step = 0; step < steps; ++step) {
    if (step % per_epoch == 0) loader.start_epoch(step / per_epoch);
    loader.fill(step % per_epoch, inputs, truths);
    arrays.seed(o.seed, step);
    session.run_into(binding);
    ++outcome.steps;
    for (const float value : losses) {
      outcome.losses.push_back(value);
      if (std::isfinite(value)) continue;
      progress.finish();
      fail(ErrorKind::kDiverged, "the loss of step {} is {}; a smaller --lr may help", step, value);
    }
    progress.show(step + 1, losses.back());
    if (session.agreement().any(stop_signal() != 0)) {
      outcome.stopped = true;
      break;
    }
  }
  outcome.seconds = progress.seconds();
  progress.finish();
  return outcome;
}

void report(const ToolOptions& o, const Programs& programs, const Session& session,
            const Outcome& outcome, std::optional<double> accuracy) {
  const int64_t steps = outcome.steps;
  const auto samples = static_cast<double>(steps * samples_of_step(o));
  const double rate = outcome.seconds > 0 ? samples / outcome.seconds : 0;
  const std::string digest = run_digest(session, outcome.losses);
  if (o.json) {
    JsonRecord record;
    record.add("model", o.model);
    if (!outcome.losses.empty()) record.add("loss", static_cast<double>(outcome.losses.back()));
    if (accuracy) record.add("accuracy", *accuracy);
    record.add("steps", steps);
    record.add("samples_per_second", rate);
    record.add("planned_bytes", session.planned_bytes());
    record.add("measured_bytes", session.measured_bytes());
    record.add("digest", digest);
    record.add("compile_seconds", session.compiled().seconds);
    add_offload(programs, record);
    add_throttle(o, record);
    fmt::print("{}\n", record.text());
    return;
  }
  if (steps > 0)
    fmt::print("{} steps, loss {:.4f}, {:.0f} samples/s\n", steps, outcome.losses.back(), rate);
  if (accuracy) fmt::print("accuracy {:.2f} %\n", *accuracy);
  fmt::print("device memory {} bytes planned, {} measured; compiled in {:.3f} s\n",
             session.planned_bytes(), session.measured_bytes(), session.compiled().seconds);
  if (o.group != nullptr) {
    fmt::print("{} processes, {} bytes each for what comes from others\n", o.group->size(),
               session.exchange_bytes());
  }
  fmt::print("{}", throttle_line(o));
  if (o.digest) fmt::print("digest {}\n", digest);
}

void load_weights(Session& session, const ToolOptions& o) {
  if (o.weights.empty()) return;
  for (const std::string& name : session.load(o.weights)) {
    if (o.log_level != "error")
      sys::print_stderr("{}: '{}' is not part of this model and was left out\n", o.weights, name);
  }
}

}  // namespace

int run_train(const ToolOptions& o) {
  const Programs programs = build_programs(o);
  log_offload(o, programs);
  Session session(programs.ir, session_options(o));
  load_weights(session, o);
  // A training whose result nobody can write is refused before it runs.
  if (o.speaks() && !o.save.empty()) sys::check_replaceable(o.save);
  const data::Dataset samples = load_samples(o, session, data::Split::kTrain);
  const data::Dataset test = load_samples(o, session, data::Split::kTest);
  catch_stop_signals();
  const Outcome outcome = train(session, programs, o, samples);
  if (!o.save.empty()) session.save(o.save);
  if (outcome.stopped) {
    report(o, programs, session, outcome, std::nullopt);
    const int signal = stop_signal() == 0 ? SIGTERM : stop_signal();  // 0: another process got it.
    if (o.speaks()) {
      sys::print_stderr("stopped by signal {} after step {}{}\n", signal, outcome.steps,
                        o.save.empty() ? "" : "; saved to " + o.save);
    }
    return o.save.empty() ? 128 + signal : static_cast<int>(ErrorKind::kStopped);
  }
  report(o, programs, session, outcome, evaluate(session, programs, o, test));
  return 0;
}

int run_eval(const ToolOptions& o) {
  require(!o.weights.empty(), "eval: --weights FILE is needed");
  const Programs programs = build_programs(o);
  log_offload(o, programs);
  Session session(programs.ir, session_options(o));
  load_weights(session, o);
  const data::Dataset test = load_samples(o, session, data::Split::kTest);
  report(o, programs, session, {}, evaluate(session, programs, o, test));
  return 0;
}

}  // namespace sluice::tool
