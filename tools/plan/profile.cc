#include "tools/plan/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"
#include "sluice/runtime/events.h"
#include "tools/machine/rates.h"
#include "tools/plan/pipeline_text.h"

namespace sluice::tool {
namespace {

// Events of a run that each worker and io queue keeps.
constexpr int64_t kEvents = 20'000;

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

// Returns the default that the help of an option names, or nothing if it depends on others.
std::string default_of(const CLI::Option& option) {
  if (option.get_expected_max() == 0) return "off";
  constexpr std::string_view kMark = "(default: ";
  const std::string help = option.get_description();
  const size_t begin = help.find(kMark);
  const size_t end = begin == std::string::npos ? begin : help.find(')', begin);
  if (end == std::string::npos) return "";
  const std::string text = help.substr(begin + kMark.size(), end - begin - kMark.size());
  return text.find(';') == std::string::npos ? text : "";
}

std::vector<report::ChosenOption> given_options(const CLI::App& command) {
  std::vector<report::ChosenOption> given;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0)
      given.push_back({option->get_name(), fmt::format("{}", fmt::join(option->results(), ",")),
                       default_of(*option)});
  }
  return given;
}

// Finds the place of a step in its executable.
class StepIndex {
 public:
  explicit StepIndex(const exe::Executable& executable) {
    for (size_t f = 0; f < executable.functions.size(); ++f) {
      const std::vector<exe::Step>& steps = executable.functions[f].steps;
      if (!steps.empty()) first_[steps.data()] = static_cast<int32_t>(f);
    }
  }
  // Returns the function and the number of the step.
  std::pair<int32_t, int32_t> place(const exe::Step& step) const {
    const auto at = std::prev(first_.upper_bound(&step));
    return {at->second, static_cast<int32_t>(&step - at->first)};
  }

 private:
  std::map<const exe::Step*, int32_t> first_;  // Function of each first step.
};

void write(const ToolOptions& o, const char* name, const std::string& text) {
  sys::replace_file(o.profile.folder + "/" + name, std::as_bytes(std::span(text)));
}

// Facts of a report that its plan does not have.
struct Facts {
  std::vector<report::Suggestion> suggestions;
  std::string refusal;
  std::vector<report::MeasuredRun> measured;
  std::vector<report::FeedReport> feeds;
};

bool write_report(const ToolOptions& o, const Programs& programs, const exe::Executable& executable,
                  Facts facts) {
  if (o.profile.folder.empty() || !o.speaks()) return false;
  const MachineRates machine = measure_rates(o);
  report::Report report = report::make_report(executable, machine.rates);
  report.model = o.model.name;
  report.options = o.profile.given;
  report.machine = machine.text;
  report.refusal = std::move(facts.refusal);
  if (programs.training.pipeline) report.pipeline.push_back(pipeline_of(programs.training));
  report.suggestions = std::move(facts.suggestions);
  const bool first = facts.measured.empty();
  report.measured = std::move(facts.measured);
  report.feeds = std::move(facts.feeds);
  try {
    write(o, "report.json", report::to_json(report));
    write(o, "report.html", report::to_html(report));
    write(o, "trace.json", report::to_chrome_trace(report));
    if (first && o.output.speaks()) sys::print_stderr("report: {}/report.html\n", o.profile.folder);
    return true;
  } catch (const Error& e) {
    sys::print_stderr("--profile: {}; the report is not complete\n", e.what());
    return false;
  }
}

// The report of the plan that would be made without budgets, beside the budgets that it exceeds.
void write_refused(const ToolOptions& o, const Error& refusal) {
  ToolOptions unlimited = without_budgets(o);
  unlimited.output.log_level = LogLevel::kError;
  const Programs programs = build_programs(unlimited);
  Compiled compiled = compile_programs(programs, unlimited);
  set_budgets(o, compiled.executable);
  write_report(o, programs, compiled.executable, {.refusal = refusal.what()});
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
  o.profile.given = given_options(command);
  if (o.speaks()) sys::make_folder(o.profile.folder);
  o.profile.folder += command.get_name() == "eval" ? "/inference" : "/training";
  if (command.get_name() == "train" || command.get_name() == "eval") o.session.events = kEvents;
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

bool write_profile(const ToolOptions& o, const Programs& programs,
                   const exe::Executable& executable, std::vector<report::Suggestion> suggestions) {
  return write_report(o, programs, executable, {.suggestions = std::move(suggestions)});
}

std::vector<report::MeasuredRun> measured_run(const Session& session, const std::string& program) {
  const StepIndex steps(session.executable());
  int64_t begin = std::numeric_limits<int64_t>::max();
  for (const runtime::Lane& lane : session.lanes()) {
    for (const runtime::Event& e : lane.ring.events()) begin = std::min(begin, e.begin);
  }
  std::map<int, report::MeasuredRun> runs;
  for (const runtime::Lane& lane : session.lanes()) {
    report::MeasuredRun& run = runs[lane.replica];
    run.program = program;
    run.replica = lane.replica;
    run.lost += lane.ring.lost();
    run.trace.complete = run.lost == 0;
    for (const runtime::Event& e : lane.ring.events()) {
      const auto [function, step] = steps.place(*e.step);
      const report::Event::Kind kind =
          e.waits ? report::Event::Kind::kWait : report::Event::Kind::kStep;
      run.trace.events.push_back({kind, lane.device, lane.queue, function, step,
                                  static_cast<double>(e.begin - begin) / 1e9,
                                  static_cast<double>(e.end - begin) / 1e9, lane.worker});
      run.trace.seconds = std::max(run.trace.seconds, run.trace.events.back().end);
    }
  }
  std::vector<report::MeasuredRun> all;
  for (auto& [replica, run] : runs) all.push_back(std::move(run));
  return all;
}

void write_measured(const ToolOptions& o, const Programs& programs, const Session& session,
                    std::vector<report::MeasuredRun> measured) {
  if (!measured.empty())
    write_report(o, programs, session.executable(),
                 {.measured = std::move(measured), .feeds = session.feed_statistics()});
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
