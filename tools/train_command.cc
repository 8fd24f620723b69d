#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/base/checked.h"
#include "sluice/base/hash.h"
#include "sluice/base/options/read_number.h"
#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"
#include "sluice/models/model.h"
#include "sluice/report/plan_report.h"
#include "sluice/runtime/strand.h"
#include "sluice/train/fit.h"
#include "sluice/train/options/schedule_table.h"
#include "sluice/train/run/load_weights.h"
#include "sluice/train/run/training_log.h"
#include "tools/call_results.h"
#include "tools/data/predictions.h"
#include "tools/data/saved_sizes.h"
#include "tools/data/user_data.h"
#include "tools/devices.h"
#include "tools/json_record.h"
#include "tools/plan/profile.h"
#include "tools/programs.h"
#include "tools/run/checkpoints.h"
#include "tools/run/run_digest.h"
#include "tools/run/stop_signal.h"

namespace sluice::tool {
namespace {

constexpr int64_t kSyntheticTrain = 20000;
constexpr int64_t kSyntheticTest = 4000;

models::SampleSet find_samples(const ToolOptions& o, data::Split split) {
  const models::Sizes& sizes = o.model.sizes;
  const models::Model& model = models::find_model(o.model.name);
  if (o.model.user_data) return sample_set(model, *o.model.user_data, split, sizes, o.step.seed);
  const models::Data& samples = *model.data;
  const auto folder = o.model.synthetic ? std::nullopt : samples.find(o.model.data);
  if (folder) return samples.load(*folder, split, sizes, o.step.seed);
  const bool train = split == data::Split::kTrain;
  if (train && o.output.speaks()) {
    sys::print_stderr("{}: using generated {}\n",
                      o.model.synthetic ? "--synthetic" : samples.missing, samples.name);
  }
  return samples.generate(train ? kSyntheticTrain : kSyntheticTest, train ? 1 : 2, sizes);
}

// Loads the samples. Error{kUsage} unless all processes have the same ones.
models::SampleSet load_samples(const ToolOptions& o, Session& session, data::Split split) {
  models::SampleSet samples = find_samples(o, split);
  if (session.agreement().size() > 1) {
    Digest digest;
    for (const data::Element& sample : samples.dataset.take(samples.size)) {
      for (const HostTensor& array : sample.arrays) digest.add(array.bytes());
    }
    session.agreement().require_same(models::find_model(o.model.name).data->name, digest.hex());
  }
  return samples;
}

// "micro-batch 8 x accumulate 4 = 32 samples a step, 937 steps an epoch", or "… samples a call, …
// calls an epoch" with several updates in a call.
std::string batch_text(const train::CallSize& call, int64_t calls) {
  const char* const what = call.device_iterations == 1 ? "step" : "call";
  return fmt::format("{} samples a {}, {} {}s an epoch", to_string(call), what, calls, what);
}

// "lr 0.001; threshold 512; io_overlapped, 1 io queue; state remote (host)".
std::string settings_text(const ToolOptions& o, const Programs& programs,
                          const train::LearningRateSchedule& schedule) {
  std::string text = fmt::format("lr {}", schedule.peak);
  if (o.train.lr_schedule) {
    text +=
        fmt::format(" {}, {} warm-up steps", train::schedule_table().find("decay").print(schedule),
                    schedule.warmup_steps);
  }
  if (o.step.locations.min_elements_sharded != nn::kNeverShard)
    text += fmt::format("; threshold {}", o.step.locations.min_elements_sharded);
  if (to_string(programs.offload.locations) != "none") {
    constexpr const char* kModes[] = {"compute", "io", "io_overlapped"};
    text += fmt::format("; {}, {} io queue{}", kModes[static_cast<int>(o.step.io_mode)],
                        o.step.session.io_queues, o.step.session.io_queues == 1 ? "" : "s");
  }
  if (const std::string reductions = reductions_text(programs.training); !reductions.empty())
    text += "; " + reductions;
  std::string moved = to_string(programs.offload.locations);
  if (moved == "none") return text + "; all variables on the device";
  if (moved.starts_with("optimizer")) moved.replace(0, std::strlen("optimizer"), "state");
  return text + fmt::format("; {} remote ({})", moved, o.offload.remote);
}

train::Show shown(const ToolOptions& o) {
  return o.output.speaks() ? train::Show::kProgress : train::Show::kNo;
}

// The samples of a training, cut into items of its calls.
struct TrainingData {
  TrainingData(const Programs& programs, const ToolOptions& o, const models::SampleSet& samples)
      : ends(samples.dataset.size() != data::kForever),
        loader(programs.options, samples.dataset,
               {.batch_size = o.model.sizes.micro_batch,
                .shuffle = ends ? data::Shuffle::kYes : data::Shuffle::kNo,
                .seed = o.step.seed}),
        calls(ends ? loader.items().value_or(0) : samples.size / loader.call_size().samples()) {
    require(ends || calls > 0 || o.train.steps || o.train.epochs == 0,
            "0 full batches: {}, the training text has {} windows of {} tokens",
            to_string(loader.call_size()), samples.size, o.model.sizes.context);
    steps = o.train.steps
                ? *o.train.steps
                : checked_mul(o.train.epochs, checked_mul(calls, o.step.device_iterations));
  }

  // Returns the calls that a run has not made yet.
  int64_t calls_left(const train::TrainingModel& model, const ToolOptions& o) {
    const int64_t updates = model.updates();
    if (o.train.steps || !ends) {
      require(updates <= steps, "--steps: must be at least {}, the steps of {}, got {}", updates,
              o.train.resume, steps);
      const int64_t calls_left = (steps - updates) / o.step.device_iterations;
      if (calls_left == 0) loader.start_at(model);  // Compares the data of a run that is complete.
      return calls_left;
    }
    loader.start_at(model);
    return std::max<int64_t>(
        checked_mul(o.train.epochs - loader.epoch(), calls) - loader.position(), 0);
  }

  bool ends;
  train::DataLoader loader;
  int64_t calls;      ///< In an epoch.
  int64_t steps = 0;  ///< In the whole run.
};

// Whether the training evaluates the test samples before its end.
bool validates(const ToolOptions& o) {
  return o.train.validate_every > 0 || o.train.patience > 0 || !o.train.save_best.empty() ||
         (o.train.lr_schedule && o.train.schedule.decay == train::Decay::kPlateau);
}

// Trains. Adds the calls after the first one to the report.
train::FitResult train(train::TrainingModel& model, const Programs& programs, const ToolOptions& o,
                       TrainingData& data, const data::Dataset& tests,
                       train::Checkpoints* checkpoints, bool has_report) {
  train::FitOptions options{.calls = data.calls_left(model, o),
                            .check_replicas = o.train.check_replicas,
                            .checkpoints = checkpoints,
                            .log_dir = o.train.log_dir,
                            .log_histograms = o.train.log_histograms};
  std::optional<train::InferenceModel> validation_model;
  std::optional<train::DataLoader> validation_data;
  if (validates(o)) {
    validation_model = train::inference_model(model);
    validation_data.emplace(
        validation_model->options(), tests,
        train::DataLoaderOptions{.batch_size = validation_model->call_size().micro_batch,
                                 .remainder = data::Remainder::kKeep});
    options.validation_model = &*validation_model;
    options.validation_data = &*validation_data;
    options.validate_every = o.train.validate_every;
    options.patience = o.train.patience;
    options.save_best = o.train.save_best;
    options.metric = o.train.metric;
  }
  const train::LearningRateSchedule schedule = schedule_of(o, data.steps);
  if (o.train.lr_schedule) options.schedule = schedule;
  if (o.output.speaks()) {
    sys::print_stderr("{}, {} samples dropped; {}\n",
                      batch_text(data.loader.call_size(), data.calls),
                      data.loader.dropped().value_or(0), settings_text(o, programs, schedule));
    if (const std::string text = results_text(programs); !text.empty())
      sys::print_stderr("{}\n", text);
  }
  options.show = shown(o);
  Measuring measuring(model.session(), "train", has_report);
  options.after_call = [&](const train::CallReport& report) {
    if (!report.watched) measuring.after_run();
    const bool saves = checkpoints != nullptr && take_save_signal();
    runtime::Agreement& agreement = model.session().agreement();
    if (!agreement.any(saves || stop_signal() != 0)) return true;
    if (checkpoints != nullptr && agreement.any(saves)) checkpoints->request_save();
    return !agreement.any(stop_signal() != 0);
  };
  try {
    const train::FitResult outcome = train::fit(model, data.loader, options);
    if (has_report) write_measured(o, programs, model.session(), measuring.take());
    return outcome;
  } catch (const Error& e) {
    if (checkpoints == nullptr) throw;
    const bool everywhere =  // In all processes, so that they can complete a save together.
        e.kind() == ErrorKind::kDiverged || model.session().agreement().size() == 1;
    try {
      if (everywhere) checkpoints->wait();
    } catch (const Error&) {  // The first error says more.
    }
    throw with_checkpoint(e, *checkpoints);
  }
}

int devices_of(const Session& session) {
  return static_cast<int>(session.executable().devices.size());
}

// Adds the validations of a training, and the best one.
void add_validations(const train::FitResult& outcome, JsonRecord& record) {
  std::vector<JsonRecord> all;
  for (const train::Evaluation& v : outcome.validations) {
    all.emplace_back().add("step", v.updates);
    for (const train::Metric& m : v.metrics) all.back().add(m.name, m.value);
  }
  if (!all.empty()) record.add("validations", std::move(all));
  if (!outcome.best.value) return;
  record.add("best_step", outcome.best.updates);
  record.add("best_" + outcome.best.metric, *outcome.best.value);
  record.add("stopped_early", outcome.stopped_early);
}

void report(const ToolOptions& o, const Programs& programs, const train::Run& run,
            const Session& session, const train::FitResult& outcome,
            const std::optional<train::Evaluation>& test) {
  const int64_t steps = run.updates;
  const auto samples = static_cast<double>(outcome.updates * samples_of_step(o));
  const double rate = outcome.seconds > 0 ? samples / outcome.seconds : 0;
  const std::string digest = run_digest(session, run);
  if (o.output.json) {
    JsonRecord record;
    record.add("model", o.model.name);
    if (!outcome.losses.empty()) {
      record.add("loss", outcome.loss);
      record.add("result_bytes", result_bytes(programs));
    }
    if (outcome.accuracy) record.add("train_accuracy", *outcome.accuracy);
    if (test) add_metrics(*test, record);
    record.add("steps", steps);
    add_validations(outcome, record);
    record.add("samples_per_second", rate);
    record.add("planned_bytes", session.planned_bytes());
    record.add("measured_bytes", session.measured_bytes());
    std::vector<JsonRecord> devices;
    for (int d = 0; d < devices_of(session); ++d) {
      devices.emplace_back().add("planned_bytes", session.planned_bytes(d));
      devices.back().add("measured_bytes", session.measured_bytes(d));
    }
    record.add("devices", std::move(devices));
    add_host_buffers(o, session.executable(), record);
    record.add("digest", digest);
    record.add("compile_seconds", session.compiled().seconds);
    add_offload(programs, record);
    add_throttle(o, record);
    fmt::print("{}\n", record.text());
    return;
  }
  const std::string trained =
      outcome.accuracy ? fmt::format(", train accuracy {:.2f} %", *outcome.accuracy) : "";
  if (outcome.updates > 0) {
    fmt::print("{} steps, loss {:.4f}{}, {:.0f} samples/s\n", steps, outcome.loss, trained, rate);
  } else if (steps > 0) {
    fmt::print("{} steps\n", steps);
  }
  if (outcome.best.value) {
    fmt::print("best {} after {} steps: {:.4f}{}\n", outcome.best.metric, outcome.best.updates,
               *outcome.best.value, outcome.stopped_early ? "; stopped early" : "");
  }
  if (test) fmt::print("{}\n", metrics_text(*test));
  fmt::print("device memory {} bytes planned, {} measured\n", session.planned_bytes(),
             session.measured_bytes());
  for (int d = 1; d < devices_of(session); ++d) {
    fmt::print("  of device {}: {} bytes planned, {} measured\n", d, session.planned_bytes(d),
               session.measured_bytes(d));
  }
  if (o.step.session.group != nullptr) {
    fmt::print("{} processes, {} bytes each for what comes from others\n",
               o.step.session.group->size(), session.exchange_bytes());
  }
  fmt::print("{}", throttle_line(o));
  if (o.output.digest) fmt::print("digest {}\n", digest);
}

void log_devices(const ToolOptions& o) {
  if (const std::string ids = device_ids_text(o); !ids.empty() && o.output.speaks())
    sys::print_stderr("{}\n", ids);
}

// The compile time; with --log-level debug also the passes and the plan's storage.
void log_compiled(const Session& session, const ToolOptions& o) {
  if (!o.output.speaks()) return;
  sys::print_stderr("compiled in {:.3f} s\n", session.compiled().seconds);
  if (o.output.log_level != LogLevel::kDebug) return;
  sys::write_stderr(passes_text(session.compiled()));
  sys::print_stderr("{}\n", report::memory_map(report::plan_report(session.executable())));
}

// With --log-level debug: the work of the run, and how often a worker had to wait for it.
void log_work(const Session& session, const ToolOptions& o) {
  if (o.output.log_level != LogLevel::kDebug) return;
  const runtime::Counters work = session.counters();
  sys::print_stderr("{} kernel tasks, {:.3f} GF, {} of operands; {} barriers, {} waits\n",
                    work.kernels, work.flops / 1e9, show_bytes(work.bytes), work.barriers,
                    work.waits);
}

enum class Averages : uint8_t { kVariables, kAsWeights };

// The options of --load-strict and --load-names.
LoadOptions load_options(const ModelOptions& o) {
  LoadOptions options{.strict = o.load_strict};
  for (const std::string& pair : o.load_names) {
    const size_t equals = pair.find('=');
    require(equals != pair.npos && equals > 0,
            "--load-names: a pair must be NAME=PATH, or NAME= to leave a tensor out, got '{}'",
            pair);
    const bool added =
        options.names.emplace(pair.substr(0, equals), pair.substr(equals + 1)).second;
    require(added, "--load-names: must have different names, got '{}' twice",
            pair.substr(0, equals));
  }
  return options;
}

// A training resumes with the averages of its file; `eval` uses averages in place of weights.
LoadResult load_file(train::TrainingModel& model, const ToolOptions& o, Averages averages) {
  if (!o.model.torch_weights.empty()) {
    return {.unused = train::load_torch_weights(model.session(), model.programs(),
                                                o.model.torch_weights)};
  }
  LoadOptions options = load_options(o.model);
  if (averages == Averages::kAsWeights)
    options = train::averages_as_weights(o.model.weights, options);
  return o.model.fresh_optimizer ? model.load_weights(o.model.weights, options)
                                 : model.load(o.model.weights, options);
}

void load_weights(train::TrainingModel& model, const ToolOptions& o, Averages averages) {
  const std::string& torch = o.model.torch_weights;
  const std::string& file = torch.empty() ? o.model.weights : torch;
  if (file.empty()) return;
  const LoadResult loaded = load_file(model, o, averages);
  if (!o.output.speaks()) return;
  for (const std::string& name : loaded.unused)
    sys::print_stderr("{}: '{}' is not part of this model and was left out\n", file, name);
  for (const std::string& path : loaded.missing)
    sys::print_stderr("{}: variable '{}' is missing and keeps its first value\n", file, path);
}

// Refuses a training before it runs if its result cannot be written.
void check_saves(const ToolOptions& o) {
  if (!o.speaks()) return;
  for (const std::string& file : {o.train.save, o.train.torch_save, o.train.save_best}) {
    if (!file.empty()) sys::check_replaceable(file);
  }
  if (!o.train.log_dir.empty()) train::make_log_folder(o.train.log_dir);
}

// Metadata of saved variables: sizes of the model, and what its samples need.
std::map<std::string, std::string> metadata_of(const ToolOptions& o) {
  std::map<std::string, std::string> metadata = sizes_metadata(o.model);
  if (o.model.user_data) metadata.merge(std::map(o.model.user_data->metadata));
  return metadata;
}

void save(train::TrainingModel& model, const ToolOptions& o) {
  if (!o.train.save.empty()) model.save(o.train.save, metadata_of(o));
  if (!o.train.torch_save.empty())
    train::save_torch_weights(model.session(), model.programs(), o.train.torch_save,
                              metadata_of(o));
}

// Opens the model with the weights of the options, and reports the choices of the tool.
train::TrainingModel open(Programs& programs, const ToolOptions& o, Averages averages) {
  log_offload(o, programs);
  log_devices(o);
  train::TrainingModel model = open_model(programs, o);
  log_compiled(model.session(), o);
  load_weights(model, o, averages);
  return model;
}

// Reports a training that a signal has stopped. Returns the exit code.
int report_stop(const ToolOptions& o, const Programs& programs, train::TrainingModel& model,
                const train::FitResult& outcome,
                const std::optional<train::Checkpoints>& checkpoints) {
  report(o, programs, model.run(), model.session(), outcome, std::nullopt);
  const int signal = stop_signal() == 0 ? SIGTERM : stop_signal();  // 0: another process got it.
  std::vector<std::string> saved;
  if (!o.train.save.empty()) saved.push_back(o.train.save);
  if (checkpoints) saved.push_back(checkpoints->newest());
  if (o.speaks()) {
    sys::print_stderr("stopped by signal {} after step {}{}\n", signal, model.updates(),
                      saved.empty() ? "" : fmt::format("; saved to {}", fmt::join(saved, ", ")));
  }
  return saved.empty() ? 128 + signal : static_cast<int>(ErrorKind::kStopped);
}

}  // namespace

int run_train(const ToolOptions& o) {
  require(!o.train.check_replicas || o.step.replicas > 1,
          "--check-replicas requires --replicas of at least 2 (it is {})", o.step.replicas);
  Programs programs = build_programs(o);
  train::TrainingModel model = open(programs, o, Averages::kVariables);
  Session& session = model.session();
  const bool has_report = write_profile(o, programs, session);
  check_saves(o);
  const models::SampleSet samples = load_samples(o, session, data::Split::kTrain);
  const models::SampleSet tests = load_samples(o, session, data::Split::kTest);
  TrainingData data(programs, o, samples);
  resume_run(model, o, data.steps);
  std::optional<train::Checkpoints> checkpoints =
      open_checkpoints(model, o, data.steps, metadata_of(o));
  catch_stop_signals();
  if (checkpoints) catch_save_signal();
  const train::FitResult outcome = train(model, programs, o, data, tests.dataset,
                                         checkpoints ? &*checkpoints : nullptr, has_report);
  if (checkpoints) log_checkpoints(*checkpoints, o);
  save(model, o);
  log_work(session, o);
  if (outcome.stopped) return report_stop(o, programs, model, outcome, checkpoints);
  report(o, programs, model.run(), session, outcome, test(model, tests.dataset, shown(o)));
  return 0;
}

int run_eval(const ToolOptions& o) {
  require(!o.model.weights.empty() || !o.model.torch_weights.empty(),
          "eval: --weights FILE or --torch-weights FILE is needed");
  Programs programs = build_programs(o);
  train::TrainingModel model = open(programs, o, Averages::kAsWeights);
  Session& session = model.session();
  const bool has_report = write_profile(o, programs, session);
  const models::SampleSet tests = load_samples(o, session, data::Split::kTest);
  Measuring measuring(session, "eval", has_report);
  const train::Evaluation result =
      test(model, tests.dataset, shown(o), [&] { measuring.after_run(); });
  if (has_report) write_measured(o, programs, session, measuring.take());
  report(o, programs, model.run(), session, {}, result);
  return 0;
}

}  // namespace sluice::tool
