#include "tools/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <set>
#include <string_view>

#include "sluice/base/checked.h"
#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/report/forecast/forecast.h"
#include "sluice/train/devices.h"
#include "tools/flags/words.h"
#include "tools/machine/rates.h"

namespace sluice::tool {
namespace {

struct NamedOptimizer {
  std::string_view name;
  nn::Optimizer (*make)();
  bool state = true;  // Whether it keeps state.
};

constexpr NamedOptimizer kOptimizers[] = {
    {"sgd", [] { return nn::Optimizer::sgd(); }, false},
    {"momentum", [] { return nn::Optimizer::sgd({.momentum = 0.9}); }},
    {"nesterov",
     [] { return nn::Optimizer::sgd({.momentum = 0.9, .form = nn::SgdForm::kNesterov}); }},
    {"adam", [] { return nn::Optimizer::adam(); }},
    {"adam-f16", [] { return nn::Optimizer::adam_f16(); }},
    {"adamw", [] { return nn::Optimizer::adamw(); }},
    {"adamax", [] { return nn::Optimizer::adamax(); }},
    {"lamb", [] { return nn::Optimizer::lamb(); }},
    {"rmsprop", [] { return nn::Optimizer::rmsprop(); }},
};

const NamedOptimizer& optimizer_of(const ToolOptions& o) {
  std::vector<std::string> names;
  for (const NamedOptimizer& row : kOptimizers) {
    if (row.name == o.train.optimizer) return row;
    names.emplace_back(row.name);
  }
  require_one_of("--optimizer", o.train.optimizer, names);
  fail(ErrorKind::kInternal, "--optimizer: '{}' has no row", o.train.optimizer);
}

using train::Location;
using train::TensorLocations;

struct OffloadKind {
  std::string_view word;
  Location TensorLocations::*location;
};

// In the order in which --offload auto tries them.
constexpr OffloadKind kOffloadKinds[] = {{"optimizer", &TensorLocations::optimizer},
                                         {"weights", &TensorLocations::weights},
                                         {"accumulators", &TensorLocations::accumulators},
                                         {"activations", &TensorLocations::activations}};

// The locations of an option list without --offload: thresholds alone.
TensorLocations on_device(const ToolOptions& o) {
  TensorLocations none = o.step.locations;
  for (const OffloadKind& kind : kOffloadKinds) none.*kind.location = Location::kDevice;
  return none;
}

bool has_accumulators(const ToolOptions& o) { return o.phased() || o.step.accumulate > 1; }

// Whether the program has tensors of this kind.
bool has(const ToolOptions& o, const OffloadKind& kind) {
  if (kind.word == "weights") return true;
  if (!o.trains) return false;
  if (kind.word == "optimizer") return optimizer_of(o).state;
  return kind.word != "accumulators" || has_accumulators(o);
}

// The words of --offload. Error{kUsage} for other words, and for tensors that do not exist.
TensorLocations parse_offload(const ToolOptions& o) {
  TensorLocations locations = on_device(o);
  std::set<std::string> words;
  for (size_t begin = 0; begin <= o.offload.tensors.size();) {
    const size_t end = std::min(o.offload.tensors.find(',', begin), o.offload.tensors.size());
    words.insert(o.offload.tensors.substr(begin, end - begin));
    begin = end + 1;
  }
  if (words == std::set<std::string>{"none"}) return locations;
  for (const std::string& word : words) {
    const auto kind = std::find_if(std::begin(kOffloadKinds), std::end(kOffloadKinds),
                                   [&](const OffloadKind& k) { return k.word == word; });
    require(kind != std::end(kOffloadKinds),
            "--offload: must be auto, none, or some of optimizer,weights,activations,accumulators, "
            "got '{}'",
            o.offload.tensors);
    require(o.trains || word == "weights",
            "--offload: must be auto, none or weights for a program that infers, got '{}'",
            o.offload.tensors);
    require(
        word != "accumulators" || has_accumulators(o),
        "--offload accumulators requires --accumulate of at least 2, or --strategy phased (it is "
        "1, without phases): the gradients of one micro-batch are not accumulated");
    locations.*kind->location = Location::kRemote;
  }
  return locations;
}

// Inference in phases is a resident program that loads the weights block by block.
train::Strategy strategy_of(const ToolOptions& o) {
  const train::Stages stages = o.stages.value_or(train::Stages());
  switch (o.execution) {
    case Execution::kPhased:
      if (!o.trains) break;
      return train::PhasedExecution{};
    case Execution::kSharded:
      return train::ShardedExecution{stages};
    case Execution::kPipelined:
      return train::PipelinedExecution{stages, o.schedule};
    case Execution::kResident:
      break;
  }
  return train::ResidentExecution{};
}

train::Network network_of(const ToolOptions& o) {
  return models::find_model(o.model.name).build(o.model.sizes);
}

Programs build(const ToolOptions& o, const TensorLocations& locations) {
  train::Options step = o.step;
  step.locations = locations;
  step.strategy = strategy_of(o);
  step.replicas = static_cast<int>(o.train.replicas);
  step.session = session_options(o);
  Programs p;
  p.ir.set_replication(step.replicas);
  if (!o.trains) {
    step.device_iterations = o.train.test_iterations;
    p.training = train::build_inference_for(p.ir, network_of(o), step);
    p.options = step;
    return p;
  }
  const NamedOptimizer& optimizer = optimizer_of(o);
  if (o.train.lr_schedule) {
    step.learning_rate = train::StreamedRate{};
  } else if (o.train.lr) {
    step.learning_rate = *o.train.lr;
  }
  p.training = train::build_training_for(step.session, p.ir, network_of(o), optimizer.make(), step,
                                         {.device_iterations = o.train.test_iterations});
  p.options = step;
  if (!p.training.note.empty() && o.output.speaks()) sys::print_stderr("{}\n", p.training.note);
  return p;
}

ToolOptions silent(const ToolOptions& o) {
  ToolOptions quiet = o;
  quiet.output.log_level = LogLevel::kError;
  quiet.session.print_after.clear();
  return quiet;
}

// Returns the text of the refusal of a plan; empty if it fits. The text shows how far the plan
// exceeds the budget.
std::string why_not(const ToolOptions& o, const TensorLocations& locations) {
  const ToolOptions quiet = silent(o);
  try {
    compile_programs(build(quiet, locations), quiet);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kDoesNotFit) throw;
    return e.what();
  }
  return "";
}

// The most bytes that a device needs, and the time that a step is forecast to take.
struct Cost {
  int64_t bytes = 0;
  double seconds = 0;
};

Cost cost_of(const ToolOptions& o, const TensorLocations& locations, const report::Rates& rates) {
  ToolOptions free = silent(o);
  free.session.device.memory = -1;
  const Compiled plan = compile_programs(build(free, locations), free);
  Cost cost;
  for (const exe::MemoryNeeds& m : exe::memory_needs(plan.executable, 0)) {
    if (m.device >= 0) cost.bytes = std::max(cost.bytes, m.total_bytes);
  }
  for (const report::ProgramForecast& p : report::forecast(plan.executable, rates)) {
    if (p.program == (o.trains ? "train" : "eval")) cost.seconds = p.seconds;
  }
  return cost;
}

struct Choice {
  TensorLocations locations;
  std::string reason;
};

// The savings and costs of each kind: "; optimizer saves 524288 bytes for 0.21 ms an update".
std::string savings(const ToolOptions& o, TensorLocations locations,
                    const std::vector<const OffloadKind*>& kinds) {
  const report::Rates rates = measure_rates(o).rates;
  Cost before = cost_of(o, locations, rates);
  std::string text;
  for (const OffloadKind* kind : kinds) {
    locations.*kind->location = Location::kRemote;
    const Cost after = cost_of(o, locations, rates);
    text += fmt::format(
        "; {} saves {} bytes for {:.2f} ms {}", kind->word, before.bytes - after.bytes,
        std::max(0.0, (after.seconds - before.seconds) * 1e3), o.trains ? "an update" : "a call");
    before = after;
  }
  return text;
}

Choice choose(const ToolOptions& o);

// These options with --strategy phased, without flags of the command line that phases refuse.
struct PhasedVariant {
  ToolOptions options;
  std::string without;  // " without --stages"; empty if all flags stay.
};

PhasedVariant phased_variant(const ToolOptions& o) {
  PhasedVariant v{silent(o), ""};
  const train::Options usual;
  v.options.execution = Execution::kPhased;
  v.options.session.more_devices.clear();
  v.options.step.rates = usual.rates;
  v.options.step.device_iterations = usual.device_iterations;
  std::vector<std::string_view> dropped = {"--device-iterations"};
  if (v.options.step.output.value_or(train::Output::all()).period > 1) {
    v.options.step.output = train::Output::all();
    dropped.push_back("--output-mode");
  }
  if (o.staged()) dropped.insert(dropped.end(), {"--stages", "--schedule", "--machine"});
  if (!o.session.more_devices.empty())
    dropped.insert(dropped.end(), {"--devices", "--device-ids", "--opaque"});
  std::erase_if(dropped, [&](std::string_view flag) {
    return std::find(o.given.begin(), o.given.end(), flag) == o.given.end();
  });
  if (!dropped.empty()) v.without = fmt::format(" without {}", fmt::join(dropped, ", "));
  return v;
}

// Names the phased program that fits; empty if there is none. Every failure to find one is an
// absent advice: the refusal that it completes must reach the user.
std::string phased_instead(const ToolOptions& o) {
  if (o.phased()) return "";
  try {
    const PhasedVariant phased = phased_variant(o);
    const Choice choice = choose(phased.options);
    const std::string one = o.session.more_devices.empty()
                                ? ""
                                : fmt::format(" with --memory {}", o.session.device.memory);
    return fmt::format("\n  --strategy phased --offload {}{}{} fits",
                       offload_words(choice.locations), one, phased.without);
  } catch (const std::exception&) {
    return "";
  }
}

// Returns the first locations that fit. Error{kDoesNotFit} if all locations exceed the budget.
Choice choose(const ToolOptions& o) {
  TensorLocations locations = on_device(o);
  std::string without;  // The refusal of the first locations.
  if (o.phased()) {
    for (const OffloadKind& kind : kOffloadKinds) {
      if (kind.word != "accumulators" && has(o, kind)) locations.*kind.location = Location::kRemote;
    }
    const std::string reason =
        fmt::format("phases keep {} in remote memory unless --offload says more",
                    o.trains ? "weights, state and activations" : "weights");
    if (o.session.device.memory < 0) return {locations, reason};
    without = why_not(o, locations);
    if (without.empty()) return {locations, reason};
  } else {
    if (o.offload.remote == "none") return {locations, "--remote none leaves no other memory"};
    if (o.session.device.memory < 0) return {locations, "device memory has no budget (--memory)"};
    without = why_not(o, locations);
    if (without.empty()) return {locations, "the program fits --memory"};
  }
  const TensorLocations first = locations;
  std::vector<const OffloadKind*> added;
  for (const OffloadKind& kind : kOffloadKinds) {
    const bool stays = o.trains && kind.word == "weights";
    if (stays || !has(o, kind) || locations.*kind.location == Location::kRemote) continue;
    locations.*kind.location = Location::kRemote;
    added.push_back(&kind);
    if (why_not(o, locations).empty()) {
      return {locations, "without it, " + without.substr(0, without.find_first_of(",\n")) +
                             savings(o, first, added)};
    }
  }
  throw Error(ErrorKind::kDoesNotFit, without + phased_instead(o));
}

}  // namespace

std::string optimizer_names(std::string_view separator) {
  std::vector<std::string_view> names;
  for (const NamedOptimizer& row : kOptimizers) names.push_back(row.name);
  return fmt::format("{}", fmt::join(names, separator));
}

train::TrainingModel open_model(const Programs& programs, const ToolOptions& o) {
  return train::training_model(network_of(o), programs.options, programs.ir, programs.training);
}

train::InferenceModel open_inference(const Programs& programs, const ToolOptions& o) {
  return train::inference_model(network_of(o), programs.options, programs.ir, programs.training);
}

std::string offload_words(const train::TensorLocations& locations) {
  std::vector<std::string_view> words;
  for (const OffloadKind& kind : kOffloadKinds) {
    if (locations.*kind.location == Location::kRemote) words.push_back(kind.word);
  }
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ","));
}

bool has_optimizer_state(const ToolOptions& o) { return optimizer_of(o).state; }

std::string default_rates() {
  std::string text;
  for (const NamedOptimizer& row : kOptimizers)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", row.name,
                        row.make().default_learning_rate());
  return text;
}

Programs build_programs(const ToolOptions& o) {
  const bool phased = o.phased();
  require(!phased || o.offload.remote != "none" || o.offload.tensors == "none",
          "--strategy phased requires --remote host or file:DIR (it is none), or --offload none");
  const Choice choice =
      o.offload.tensors == "auto" ? choose(o) : Choice{parse_offload(o), "given by --offload"};
  require(choice.locations == on_device(o) || o.offload.remote != "none",
          "--offload {} requires --remote host or file:DIR (it is none)", o.offload.tensors);
  Programs programs = build(o, choice.locations);
  programs.locations = choice.locations;
  programs.offload_reason = choice.reason;
  return programs;
}

Compiled compile_programs(const Programs& programs, const ToolOptions& o) {
  try {
    return compile(programs.ir, compile_options(session_options(o)));
  } catch (Error& e) {
    train::note_stages(programs.training, e);
    throw;
  }
}

std::string offload_line(const Programs& programs) {
  return fmt::format("offload: {}; {}\n", offload_words(programs.locations),
                     programs.offload_reason);
}

void log_offload(const ToolOptions& o, const Programs& programs) {
  if (o.offload.tensors == "auto" && o.output.speaks()) sys::write_stderr(offload_line(programs));
}

void add_offload(const Programs& programs, JsonRecord& record) {
  record.add("offload", offload_words(programs.locations));
  record.add("offload_reason", programs.offload_reason);
}

namespace {

// The dtypes of the accumulators, between commas.
std::string accumulator_dtypes(const train::Training& training) {
  std::set<std::string_view> names;
  for (const auto& [key, dtype] : training.reductions.accumulators) names.insert(name_of(dtype));
  return fmt::format("{}", fmt::join(names, ","));
}

}  // namespace

std::string reductions_text(const train::Training& t) {
  const train::GradientReductions& r = t.reductions;
  const bool own = std::all_of(r.accumulators.begin(), r.accumulators.end(), [&](const auto& a) {
    return a.second == t.variables[a.first].dtype();
  });
  const train::GradientReductions usual;
  if (r.accumulation == usual.accumulation && r.replicas == usual.replicas && own) return "";
  std::string text =
      fmt::format("gradients: {} of {} micro-batches", to_string(r.accumulation), t.accumulate);
  if (t.replicas > 1) text += fmt::format(", {} of {} replicas", to_string(r.replicas), t.replicas);
  return text + ", accumulators " + accumulator_dtypes(t);
}

void add_reductions(const train::Training& t, JsonRecord& record) {
  record.add("accumulation_reduction", std::string(to_string(t.reductions.accumulation)));
  record.add("replica_reduction", std::string(to_string(t.reductions.replicas)));
  record.add("accumulator_dtypes", accumulator_dtypes(t));
}

int64_t devices_of_replica(const ToolOptions& o) {
  if (!o.staged()) return 1;
  ToolOptions one = silent(o);
  one.train.replicas = 1;
  one.schedule = train::Schedule::kGrouped;  // Each schedule has the same devices; this one does
                                             // not need a plan.
  return build(one, on_device(o)).training.devices;
}

SessionOptions session_options(const ToolOptions& o) {
  SessionOptions options = o.session;
  if (o.offload.remote != "none") options.remote = o.offload.remote;
  return options;
}

train::LearningRateSchedule schedule_of(const ToolOptions& o, int64_t steps) {
  return {.decay = o.train.lr_schedule.value_or(train::Decay::kConstant),
          .peak = o.train.lr.value_or(optimizer_of(o).make().default_learning_rate()),
          .warmup_steps = o.train.warmup_steps,
          .steps = steps};
}

std::string throttle_line(const ToolOptions& o) {
  return o.session.remote_bandwidth < 0
             ? ""
             : fmt::format("remote memory throttled to {} B/s\n", o.session.remote_bandwidth);
}

void add_throttle(const ToolOptions& o, JsonRecord& record) {
  if (o.session.remote_bandwidth >= 0) record.add("remote_bandwidth", o.session.remote_bandwidth);
}

std::string passes_text(const Compiled& compiled) {
  std::string text;
  for (const PassRecord& pass : compiled.passes) {
    const std::string effect =
        pass.enabled ? fmt::format("{:8.3f} ms {:>6} changes", pass.seconds * 1e3, pass.changes)
                     : fmt::format("{:>26}", "disabled");
    text += fmt::format("pass {:<13} {}  {}\n", pass.name, effect, pass.reason);
  }
  return text;
}

std::string fusions_text(const Compiled& compiled) {
  std::string text;
  for (const auto& [name, count] : compiled.fusions.made)
    text += fmt::format("fused     {:>5} x {}\n", count, name);
  for (const auto& [why, count] : compiled.fusions.refused)
    text += fmt::format("not fused {:>5} x {}\n", count, why);
  return text;
}

int64_t samples_of_step(const ToolOptions& o) {
  return checked_mul(checked_mul(o.model.sizes.micro_batch, o.step.accumulate), o.train.replicas);
}

}  // namespace sluice::tool
