#include "tools/check_needs.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/train/options/schedule_table.h"
#include "tools/flags/flag_table.h"
#include "tools/flags/help.h"
#include "tools/programs.h"

namespace sluice::tool {
namespace {

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

bool is_given(const CLI::App& command, const std::string& flag) {
  return command.get_option_no_throw(flag) != nullptr && command.count(flag) > 0;
}

// The flags of the sizes of all models.
std::set<std::string> all_sizes() {
  std::set<std::string> sizes;
  for (const models::Model& m : models::all_models()) sizes.insert(m.sizes.begin(), m.sizes.end());
  return sizes;
}

void check_loss(bool given, const ModelOptions& o) {
  const models::Model& model = models::find_model(o.name);
  std::string losses;  // The models that take --loss.
  for (const models::Model& m : models::all_models()) {
    if (m.has_loss_option) losses += (losses.empty() ? "" : ", ") + std::string(m.name);
  }
  require(!given || model.has_loss_option,
          "--loss: {} has a loss of its own; leave it out, or use {}", model.name, losses);
  require(o.sizes.loss == models::Loss::kCrossEntropy || !o.dataset.empty(),
          "--loss mse requires --dataset (it is absent)");
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
  const models::Model& model = models::find_model(o.model.name);
  for (const std::string& size : all_sizes()) {
    const auto& has = model.sizes;
    require(!is_given(command, size) || std::find(has.begin(), has.end(), size) != has.end(),
            "{}: {} does not have this size; leave it out", size, model.name);
  }
  check_loss(is_given(command, "--loss"), o.model);
  check_output(o);
  check_machine(command, o);
  require(o.train.save.empty() || o.train.save != o.train.torch_save,
          "--save and --torch-save must name two files, got '{}' for both", o.train.save);
  const bool runs = command.get_name() == "train";
  require(!runs || o.step.watch.empty() || !o.train.log_dir.empty(),
          "{} requires --log-dir (it is absent)",
          o.step.watch.gradients.empty() ? "--watch-values" : "--watch-gradients");
  if (runs) train::check_combination("", schedule_of(o, 0), OptionNames::kFlags);
  require(runs || !o.train.lr_schedule || !o.train.lr,
          "--lr cannot be combined with --lr-schedule in sluice {}: the rate is not part of the "
          "program",
          command.get_name());
}

void check_exclusions(const CLI::App& command) {
  for (const auto& [a, b] : flag_table().exclusions)
    require(!is_given(command, a) || !is_given(command, b), "{} cannot be combined with {}", a, b);
}

bool plan_needs_model(const CLI::App& command) {
  if (is_given(command, "--problem"))
    allow_only(command, "--problem", {"--capacity", "--nodes", "--json"});
  else if (is_given(command, "--check"))
    allow_only(command, "--check", {});
  return !is_given(command, "--problem") && !is_given(command, "--check");
}

bool bench_needs_suite(const CLI::App& app) {
  const bool suite = app.count("model") == 0;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_positional()) continue;
    const std::string name = option->get_name();
    const bool of_both = name == "--json" || name == "--threads" || name == kSingleProcess;
    require(of_both || (option->get_group() == kSuiteGroup) == suite, "{} {}", name,
            suite ? "requires a model (sluice bench mnist)" : "cannot be combined with a model");
  }
  for (const char* option : {"--only", "--rounds", "--python", "--threads"})
    require(app.count("--dataset") == 0 || app.count(option) == 0,
            "{} cannot be combined with --dataset", option);
  return suite;
}

}  // namespace sluice::tool
