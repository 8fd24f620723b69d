#include "tools/plan/profile.h"

#include <fmt/format.h>

#include <span>

#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"
#include "tools/plan/pipeline_text.h"
#include "tools/rates.h"

namespace sluice::tool {
namespace {

report::Pipeline pipeline_of(const train::Training& training) {
  const train::PipelinePlan& plan = *training.pipeline;
  report::Pipeline p{.schedule = std::string(to_string(plan.schedule)),
                     .micro_batches = training.accumulate,
                     .period = plan.order.period,
                     .slots = plan.order.slots(training.accumulate),
                     .ramp_slots = plan.order.ramp() * plan.order.period,
                     .seconds = plan.times.total,
                     .bubble = plan.times.bubble,
                     .imbalance = imbalance(plan),
                     .slowest = static_cast<int32_t>(slowest_stage(plan))};
  for (const train::StagePlan& s : plan.stages)
    p.stages.push_back({.blocks = fmt::format("{}", fmt::join(s.blocks, "+")),
                        .device = s.device,
                        .forward_seconds = s.times.forward,
                        .backward_seconds = s.times.backward,
                        .message_seconds = s.times.message,
                        .in_flight = s.in_flight,
                        .activation_bytes = s.activation_bytes,
                        .parameters = s.parameters});
  for (const train::PipelineTask& t : plan.order.tasks)
    p.tasks.push_back({t.stage, t.backward, t.slot});
  return p;
}

std::vector<report::ChosenOption> given_options(const CLI::App& command) {
  std::vector<report::ChosenOption> given;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0)
      given.emplace_back(option->get_name(), fmt::format("{}", fmt::join(option->results(), ",")));
  }
  return given;
}

void write(const ToolOptions& o, const char* name, const std::string& text) {
  sys::replace_file(o.profile.folder + "/" + name, std::as_bytes(std::span(text)));
}

void write_report(const ToolOptions& o, const Programs& programs, const exe::Executable& executable,
                  std::vector<report::Suggestion> suggestions, std::string refusal) {
  if (o.profile.folder.empty() || !o.speaks()) return;
  const MachineRates machine = measure_rates(o);
  report::Report report = report::make_report(executable, machine.rates);
  report.model = o.model.name;
  report.options = o.profile.given;
  report.machine = machine.text;
  report.refusal = std::move(refusal);
  if (programs.training.pipeline) report.pipeline.push_back(pipeline_of(programs.training));
  report.suggestions = std::move(suggestions);
  try {
    write(o, "report.json", report::to_json(report));
    write(o, "report.html", report::to_html(report));
    write(o, "trace.json", report::to_chrome_trace(report));
    if (o.output.speaks()) sys::print_stderr("report: {}/report.html\n", o.profile.folder);
  } catch (const Error& e) {
    sys::print_stderr("--profile: {}; the report is not complete\n", e.what());
  }
}

// The report of the plan that would be made without budgets, beside the budgets that it exceeds.
void write_refused(const ToolOptions& o, const Error& refusal) {
  ToolOptions unlimited = without_budgets(o);
  unlimited.output.log_level = LogLevel::kError;
  const Programs programs = build_programs(unlimited);
  Compiled compiled = compile_programs(programs, unlimited);
  set_budgets(o, compiled.executable);
  write_report(o, programs, compiled.executable, {}, refusal.what());
}

}  // namespace

void add_profile(Flags flags, const std::string& group, ToolOptions& o) {
  flags.group(group, Common::kNo)
      .optional_text("--profile", "./profile", o.profile.folder,
                     "Write report.html, report.json and trace.json to DIR/training, or "
                     "DIR/inference for eval; --profile=DIR (default of DIR: ./profile)");
  flags.text("--profile-dir", "DIR", o.profile.folder, "Write them as --profile=DIR does");
}

int run_with_profile(const CLI::App& command, ToolOptions o, int (*run)(const ToolOptions&)) {
  require(command.count("--profile") + command.count("--profile-dir") < 2,
          "--profile-dir: cannot be combined with --profile; --profile=DIR names the folder");
  if (o.profile.folder.empty()) return run(o);
  require(!o.plan.compares(),
          "--profile: requires one plan, got lists of --replicas or --shard-threshold");
  o.profile.given = given_options(command);
  if (o.speaks()) sys::make_folder(o.profile.folder);
  o.profile.folder += command.get_name() == "eval" ? "/inference" : "/training";
  if (o.speaks()) {
    sys::make_folder(o.profile.folder);
    sys::check_replaceable(o.profile.folder + "/report.json");
  }
  try {
    return run(o);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kDoesNotFit) write_refused(o, e);
    throw;
  }
}

void write_profile(const ToolOptions& o, const Programs& programs,
                   const exe::Executable& executable, std::vector<report::Suggestion> suggestions) {
  write_report(o, programs, executable, std::move(suggestions), "");
}

ToolOptions without_budgets(ToolOptions o) {
  o.session.device.memory = -1;
  for (DeviceChoice& d : o.session.more_devices) d.memory = -1;
  o.session.remote_memory = -1;
  o.session.print_after.clear();
  return o;
}

void set_budgets(const ToolOptions& o, exe::Executable& executable) {
  executable.devices[0].memory_budget = o.session.device.memory;
  for (size_t d = 1; d < executable.devices.size(); ++d)
    executable.devices[d].memory_budget = o.session.more_devices[d - 1].memory;
  for (exe::Tier& tier : executable.tiers) tier.budget = o.session.remote_memory;
}

}  // namespace sluice::tool
