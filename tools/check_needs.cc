#include "tools/check_needs.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/base/error.h"
#include "tools/flags/flags.h"

namespace sluice::tool {
namespace {

// An option that the command line gives and its prerequisite.
struct Need {
  bool given;
  bool met;
  const char* option;
  const char* required;
  std::string found;
};

// Error{kUsage} unless the command line has no other options than these.
void allow_only(const CLI::App& command, const std::string& form,
                const std::vector<std::string>& allowed) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    require(option->count() == 0 || name == form || name == kSingleProcess ||
                std::find(allowed.begin(), allowed.end(), name) != allowed.end(),
            "{} cannot be combined with {}", name, form);
  }
}

constexpr std::string_view kSuiteFlags[] = {"--only",   "--rounds",   "--python", "--dataset",
                                            "--epochs", "--elements", "--repeat"};

void check_loss(bool given, const ModelOptions& o) {
  const models::Model& model = models::find_model(o.name);
  std::string losses;  // The models that take --loss.
  for (const models::Model& m : models::all_models()) {
    if (m.takes_loss) losses += (losses.empty() ? "" : ", ") + std::string(m.name);
  }
  require(!given || model.takes_loss, "--loss: {} has a loss of its own; leave it out, or use {}",
          model.name, losses);
  require(o.sizes.loss == models::Loss::kCrossEntropy || !o.dataset.empty(),
          "--loss mse requires --dataset (it is absent)");
}

void check_table(const CLI::App& command, const ModelOptions& o) {
  const std::string dataset = o.dataset.empty() ? "absent" : o.dataset;
  for (const char* option :
       {"--header", "--separator", "--decimal", "--missing", "--standardize"}) {
    const bool is_given =
        command.get_option_no_throw(option) != nullptr && command.count(option) > 0;
    require(!is_given || dataset.starts_with("csv:"), "{} requires --dataset csv:FILE (it is {})",
            option, dataset);
  }
  require(!o.test_all || !o.dataset.empty(), "--all requires --dataset (it is absent)");
}

void check_output(const ToolOptions& o) {
  const train::Output output = o.step.output.value_or(train::Output::all());
  require(o.step.device_iterations % output.period == 0,
          "--output-mode every:N: N must be a divisor of --device-iterations {}, got {}",
          o.step.device_iterations, output.period);
}

void check_machine(const CLI::App& command, const ToolOptions& o) {
  require(
      o.machine.empty() || command.get_name() == "plan" || o.staged() || !o.profile.folder.empty(),
      "--machine requires --profile, or --strategy pipelined or sharded");
}

}  // namespace

void check_needs(const CLI::App& command, const ToolOptions& o) {
  constexpr const char* kStrategies[] = {"resident", "phased", "sharded", "pipelined"};
  const std::string strategy = kStrategies[static_cast<size_t>(o.execution)];
  const bool file = o.offload.remote.starts_with("file:");
  const bool stays = o.offload.tensors == "none";
  // Whether the step never moves tensors, for any result of --offload auto.
  const bool still =
      stays || (!o.phased() && o.offload.tensors == "auto" && o.session.device.memory < 0);
  const char* const moving = o.phased() ? "offloaded tensors" : "--strategy phased";
  const std::string found = o.phased() ? "--offload none" : strategy;
  const train::Options step;
  const SessionOptions session;
  const bool schedule = o.train.lr_schedule.has_value();
  const auto given = [&](const char* name) {
    return command.get_option_no_throw(name) != nullptr && command.count(name) > 0;
  };
  const Need needs[] = {
      {o.step.io_mode != step.io_mode, !still, "--io-mode", moving, found},
      {o.session.io_queues != session.io_queues, !still, "--io-queues", moving, found},
      {o.session.io_queues != session.io_queues, o.step.io_mode != IoMode::kCompute, "--io-queues",
       "--io-mode io or io_overlapped", "compute"},
      {o.stages.has_value(), o.staged(), "--stages", "--strategy phased, pipelined or sharded",
       strategy},
      {o.stages.has_value() && o.phased(), o.trains, "--stages with --strategy phased", "training",
       "inference"},
      {o.group != 0, o.phased() && o.trains, "--group", "training with --strategy phased",
       strategy},
      {o.plan.form == PlanOptions::Form::kScheduleTable, o.staged() && !o.phased(),
       "--schedule-table", "--strategy pipelined or sharded", strategy},
      {given("--schedule"), o.execution == Execution::kPipelined, "--schedule",
       "--strategy pipelined", strategy},
      {o.session.remote_direct, file, "--remote-direct", "--remote file:DIR", o.offload.remote},
      {o.session.verify_remote, file, "--verify-remote", "--remote file:DIR", o.offload.remote},
      {o.session.remote_memory >= 0, !stays, "--remote-memory", "offloaded tensors",
       "--offload none"},
      {o.session.remote_bandwidth >= 0, !stays, "--remote-bandwidth", "offloaded tensors",
       "--offload none"},
      {o.step.accumulation_reduction != step.accumulation_reduction, o.step.accumulate > 1,
       "--accumulation-reduction", "--accumulate of at least 2", "1"},
      {o.step.accumulator_dtype.index() != 0, o.step.accumulate > 1, "--accumulator-dtype",
       "--accumulate of at least 2", "1"},
      {o.step.replica_reduction != step.replica_reduction, o.train.replicas > 1,
       "--replica-reduction", "--replicas of at least 2", "1"},
      {!o.map.empty(), o.session.group != nullptr, "--map", "several processes of mpirun", "one"},
      {!o.model.input.empty(), !o.model.dataset.empty(), "--input", "--dataset", "absent"},
      {!o.model.target.empty(), !o.model.dataset.empty(), "--target", "--dataset", "absent"},
      {given("--validation"), !o.model.dataset.empty(), "--validation", "--dataset", "absent"},
      {o.model.fresh_optimizer, !o.model.weights.empty(), "--fresh-optimizer", "--weights",
       "absent"},
      {o.train.warmup_steps > 0, schedule, "--warmup-steps", "--lr-schedule", "absent"},
      {o.train.log_histograms > 0, !o.train.log_dir.empty(), "--log-histograms", "--log-dir",
       "absent"},
  };
  for (const Need& n : needs) {
    require(!n.given || n.met, "{} requires {} (it is {})", n.option, n.required, n.found);
  }
  const models::Model& model = models::find_model(o.model.name);
  for (const char* size : {"--layers", "--width", "--dropout"}) {
    const auto& has = model.sizes;
    require(!given(size) || std::find(has.begin(), has.end(), size) != has.end(),
            "{}: {} does not have this size; leave it out", size, model.name);
  }
  check_loss(given("--loss"), o.model);
  check_table(command, o.model);
  check_output(o);
  check_machine(command, o);
  using Pair = std::pair<const char*, const char*>;
  for (const auto& [a, b] :
       {Pair("--dataset", "--data"), Pair("--dataset", "--synthetic"),
        Pair("--all", "--validation"), Pair("--quiet", "--log-level"), Pair("--epochs", "--steps"),
        Pair("--weights", "--torch-weights"), Pair("--recompute", "--recompute-blocks")})
    require(!given(a) || !given(b), "{} cannot be combined with {}", a, b);
  require(o.train.save.empty() || o.train.save != o.train.torch_save,
          "--save and --torch-save must name two files, got '{}' for both", o.train.save);
  require(command.get_name() == "train" || !schedule || !given("--lr"),
          "--lr cannot be combined with --lr-schedule in sluice {}: the rate is not part of the "
          "program",
          command.get_name());
}

bool plan_needs_model(const CLI::App& command, const PlanOptions& plan) {
  require(plan.capacity < 0 || !plan.problem.empty(),
          "--capacity requires --problem FILE.csv; a model's budget is --memory");
  require(!plan.nodes || !plan.problem.empty(), "--nodes requires --problem FILE.csv");
  if (!plan.problem.empty()) {
    allow_only(command, "--problem", {"--capacity", "--nodes", "--json"});
    return false;
  }
  if (!plan.check.empty()) {
    allow_only(command, "--check", {});
    return false;
  }
  return true;
}

void check_form(const CLI::App& command, const ToolOptions& o) {
  for (const char* form :
       {"--full", "--passes", "--fusions", "--memory-map", "--transfers", "--dot"}) {
    if (command.count(form) == 0) continue;
    require(!o.output.json, "{} cannot be combined with --json", form);
  }
  require(o.plan.form != PlanOptions::Form::kDot || o.session.print_after.empty(),
          "--dot cannot be combined with --print-after");
}

bool bench_needs_suite(const CLI::App& app) {
  const bool suite = app.count("model") == 0;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_positional()) continue;
    const std::string name = option->get_name();
    const bool of_suite =
        std::find(std::begin(kSuiteFlags), std::end(kSuiteFlags), name) != std::end(kSuiteFlags);
    const bool of_both = name == "--json" || name == "--threads" || name == kSingleProcess;
    require(of_both || of_suite == suite, "{} {}", name,
            suite ? "requires a model (sluice bench mnist)" : "cannot be combined with a model");
  }
  const bool dataset = app.count("--dataset") > 0;
  for (const char* option : {"--epochs", "--elements", "--repeat"})
    require(dataset || app.count(option) == 0, "{} requires --dataset (it is absent)", option);
  for (const char* option : {"--only", "--rounds", "--python", "--threads"})
    require(!dataset || app.count(option) == 0, "{} cannot be combined with --dataset", option);
  return suite;
}

}  // namespace sluice::tool
