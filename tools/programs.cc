#include "tools/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/base/sys.h"
#include "sluice/train/devices.h"
#include "tools/machine/rates.h"
#include "tools/optimizers.h"

namespace sluice::tool {
namespace {

using train::Location;
using train::OffloadKind;
using train::OffloadReason;
using train::TensorLocations;

// The locations of an option list without --offload: thresholds alone.
TensorLocations on_device(const ToolOptions& o) {
  TensorLocations none = o.step.locations;
  for (const OffloadKind& kind : train::offload_kinds()) none.*kind.location = Location::kDevice;
  return none;
}

bool has_accumulators(const ToolOptions& o) { return o.phased() || o.step.accumulate > 1; }

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
  const std::span<const OffloadKind> kinds = train::offload_kinds();
  for (const std::string& word : words) {
    const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const OffloadKind& k) { return k.word == word; });
    require(kind != kinds.end(),
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

train::Network network_of(const ToolOptions& o) {
  return models::find_model(o.model.name).build(o.model.sizes);
}

bool is_automatic(const ToolOptions& o) { return o.offload.tensors == "auto"; }

// The options of the programs, with the locations of --offload.
train::Options options_of(const ToolOptions& o) {
  train::Options step = o.step;
  // Inference in phases is a resident program that loads the weights block by block.
  if (!o.trains && o.phased()) step.strategy = train::resident();
  step.session = session_options(o);
  step.locations = is_automatic(o) ? on_device(o) : parse_offload(o);
  if (is_automatic(o) && o.offload.remote != "none") step.offload = train::automatic;
  if (!o.trains) {
    step.device_iterations = o.train.test_iterations;
    if (is_automatic(o) && o.phased()) step.locations.weights = Location::kRemote;
  } else if (o.train.lr_schedule) {
    step.learning_rate = train::StreamedRate{};
  } else if (o.train.lr) {
    step.learning_rate = *o.train.lr;
  }
  return step;
}

train::Options evaluation_of(const ToolOptions& o) {
  return {.device_iterations = o.train.test_iterations};
}

train::PlannedPrograms take_plan(Programs& programs) {
  train::PlannedPrograms planned = programs;
  programs.compiled = nullptr;
  return planned;
}

// The reason of an offload in the words of the flags.
std::string offload_reason(const ToolOptions& o, const train::OffloadDecision& decision) {
  if (!is_automatic(o)) return "given by --offload";
  if (o.phased() && decision.tried.size() == 1) {
    return fmt::format("phased runs offload {} by default; --offload changes this",
                       o.trains ? "weights, state and activations" : "weights");
  }
  switch (decision.reason) {
    case OffloadReason::kGiven:
      return "--remote none leaves no other memory";
    case OffloadReason::kNoBudget:
      return "device memory has no budget (--memory)";
    case OffloadReason::kFits:
      return "the program fits --memory";
    case OffloadReason::kNeeded:
      break;
  }
  return decision.why();
}

// The command line that differs from this one by phases, in the words of its flags: "--strategy
// phased --offload weights", and the flags of several devices.
std::string phased_command(const ToolOptions& o, const TensorLocations& locations) {
  std::vector<std::string_view> dropped;
  if (o.staged()) dropped.insert(dropped.end(), {"--stages", "--schedule", "--machine"});
  const bool several = !o.step.session.more_devices.empty();
  if (several) dropped.insert(dropped.end(), {"--devices", "--device-ids", "--opaque"});
  std::erase_if(dropped, [&](std::string_view flag) {
    return std::find(o.given.begin(), o.given.end(), flag) == o.given.end();
  });
  return fmt::format("--strategy phased --offload {}{}{}", to_string(locations),
                     several ? fmt::format(" with --memory {}", o.step.session.device.memory) : "",
                     dropped.empty() ? "" : fmt::format(" without {}", fmt::join(dropped, ", ")));
}

}  // namespace

train::TrainingModel open_model(Programs& programs, const ToolOptions& o) {
  return train::open_training(network_of(o), take_plan(programs));
}

train::InferenceModel open_inference(Programs& programs, const ToolOptions& o) {
  return train::open_inference(network_of(o), take_plan(programs));
}

RefusedPrograms::RefusedPrograms(const DoesNotFit& refusal, std::shared_ptr<Programs> programs)
    : DoesNotFit(refusal), programs_(std::move(programs)) {}

Programs build_programs(const ToolOptions& o) {
  require(!o.phased() || o.offload.remote != "none" || o.offload.tensors == "none",
          "--strategy phased requires --remote host or file:DIR (it is none), or --offload none");
  const train::Options options = options_of(o);
  require(options.locations == on_device(o) || o.offload.remote != "none",
          "--offload {} requires --remote host or file:DIR (it is none)", o.offload.tensors);
  const train::ForecastRates rates = [&o] { return measure_rates(o).rates; };
  const train::Network network = network_of(o);
  Programs programs{o.trains ? train::plan_training(network, make_optimizer(o, network), options,
                                                    evaluation_of(o), rates)
                             : train::plan_inference(network, options, rates),
                    ""};
  programs.offload_reason = offload_reason(o, programs.offload);
  if (!programs.training.note.empty() && o.output.speaks())
    sys::print_stderr("{}\n", programs.training.note);
  if (programs.offload.fits) return programs;
  DoesNotFit refusal = train::refusal_of(programs);
  if (programs.offload.phased)
    refusal = refusal.with_remedy(phased_command(o, *programs.offload.phased));
  throw RefusedPrograms(refusal, std::make_shared<Programs>(std::move(programs)));
}

std::string offload_line(const Programs& programs) {
  return fmt::format("offload: {}; {}\n", to_string(programs.offload.locations),
                     programs.offload_reason);
}

void log_offload(const ToolOptions& o, const Programs& programs) {
  if (is_automatic(o) && o.output.speaks()) sys::write_stderr(offload_line(programs));
}

void add_offload(const Programs& programs, JsonRecord& record) {
  record.add("offload", to_string(programs.offload.locations));
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
  ToolOptions one = o;
  one.step.replicas = 1;
  one.offload.tensors = "none";
  // Every strategy has the same devices; this one needs neither a schedule nor remote memory.
  const train::Stages* const stages = train::given_stages(*o.step.strategy);
  one.step.strategy = train::ShardedExecution{stages == nullptr ? train::Stages() : *stages};
  const train::Options options = options_of(one);
  const Ir ir;
  const train::Network network = network_of(o);
  if (!o.trains) return train::build_inference_for(ir, network, options).devices;
  return train::build_training_for(options.session, ir, network, make_optimizer(o, network),
                                   options, evaluation_of(o))
      .devices;
}

SessionOptions session_options(const ToolOptions& o) {
  SessionOptions options = o.step.session;
  if (o.offload.remote != "none") options.remote = o.offload.remote;
  return options;
}

train::LearningRateSchedule schedule_of(const ToolOptions& o, int64_t steps) {
  train::LearningRateSchedule schedule = o.train.schedule;
  schedule.peak = o.train.lr.value_or(default_rate(o));
  schedule.steps = steps;
  return schedule;
}

std::string throttle_line(const ToolOptions& o) {
  return o.step.session.remote_bandwidth < 0
             ? ""
             : fmt::format("remote memory throttled to {} B/s\n", o.step.session.remote_bandwidth);
}

void add_throttle(const ToolOptions& o, JsonRecord& record) {
  if (o.step.session.remote_bandwidth >= 0)
    record.add("remote_bandwidth", o.step.session.remote_bandwidth);
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
  return checked_mul(checked_mul(o.model.sizes.micro_batch, o.step.accumulate), o.step.replicas);
}

}  // namespace sluice::tool
