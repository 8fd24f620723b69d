#include "tools/plan/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"
#include "sluice/report/measured_times.h"
#include "sluice/runtime/process_group.h"
#include "sluice/session/measured.h"
#include "sluice/session/profile.h"
#include "sluice/train/pipeline/pipeline_report.h"
#include "tools/flags/flag_values.h"
#include "tools/flags/help.h"
#include "tools/machine/rates.h"
#include "tools/plan/plan_advice.h"
#include "tools/run/checkpoints.h"

namespace sluice::tool {
namespace {

// The remedy of a refused plan is worth a longer search than advice for one that fits.
constexpr double kMaxRemedySeconds = 5;

std::vector<report::ChosenOption> given_options(const CLI::App& command, const ToolOptions& o) {
  const std::vector<models::Default> own = model_defaults(command, o);
  std::vector<report::ChosenOption> given;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = option->get_name();
    const auto found =
        std::find_if(own.begin(), own.end(), [&](const auto& d) { return d.flag == name; });
    given.push_back({name, fmt::format("{}", fmt::join(option->results(), ",")),
                     found == own.end() ? default_of(*option) : std::string(found->text)});
  }
  return given;
}

// Facts of a report that its plan does not have.
struct Facts {
  std::vector<report::Suggestion> suggestions;
  std::string refusal;
  std::vector<report::MeasuredRun> measured;
  int64_t event_bytes = 0;
  std::vector<report::FeedReport> feeds;
};

// Writes the report if it is asked for, and returns whether it is. Error{kIo} if a file cannot be
// written.
bool write_report(const ToolOptions& o, const Programs& programs, const exe::Executable& executable,
                  Facts facts) {
  if (o.profile.folder.empty() || !o.speaks()) return false;
  const MachineRates machine = measure_rates(o);
  report::Report report = report::make_report(executable, machine.rates);
  report.model = o.model.name;
  report.options = o.profile.given;
  report.machine = machine.text;
  report.refusal = std::move(facts.refusal);
  report.host_buffers = host_buffers(o, executable);
  if (programs.training.pipeline)
    report.pipeline.push_back(train::pipeline_report(programs.training));
  report.suggestions = std::move(facts.suggestions);
  const bool first = facts.measured.empty();
  report::add_measured(std::move(facts.measured), report);
  report.event_bytes = facts.event_bytes;
  report.feeds = std::move(facts.feeds);
  try {
    sluice::write_report(o.profile.folder, report);
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("--profile: {}; the report is not complete", e.what()));
  }
  if (first && o.output.speaks()) sys::print_stderr("report: {}/report.html\n", o.profile.folder);
  return true;
}

// Writes a report after the work that it describes. A disk that is full by then is a warning: the
// results matter more.
void write_late(const ToolOptions& o, const Programs& programs, const exe::Executable& executable,
                Facts facts) {
  try {
    write_report(o, programs, executable, std::move(facts));
  } catch (const Error& e) {
    sys::print_stderr("{}\n", e.what());
  }
}

// Returns the programs of a refusal. The machine may refuse programs that fit their budgets.
Programs programs_of(const ToolOptions& o, const Error& refusal) {
  if (const auto* const refused = dynamic_cast<const RefusedPrograms*>(&refusal))
    return *refused->programs();
  ToolOptions quiet = o;
  quiet.output.log_level = LogLevel::kError;
  return build_programs(quiet);
}

// Writes the report of a plan that does not fit, with the budgets that it exceeds and the options
// that would make it fit. Warns if it cannot: the caller throws the refusal.
void write_refused(const ToolOptions& o, const Error& refusal) noexcept {
  try {
    const Programs programs = programs_of(o, refusal);
    const exe::Executable& executable = programs.compiled->executable;
    std::vector<report::Suggestion> options;
    if (o.trains)
      options = suggestions(o, programs, report::plan_report(executable), kMaxRemedySeconds);
    write_late(o, programs, executable,
               {.suggestions = std::move(options), .refusal = refusal.what()});
  } catch (const std::exception& e) {
    sys::print_stderr("--profile: {}; the report is not written\n", e.what());
  }
}

}  // namespace

int run_with_profile(const CLI::App& command, ToolOptions o, int (*run)(const ToolOptions&)) {
  if (command.count("--profile") > 0 && command.count("--profile-dir") > 0) {
    const auto folder = command.get_option("--profile")->as<std::string>();
    require(folder == kUsualProfileFolder || folder == o.profile.folder,
            "--profile-dir: must be the folder of --profile={}, got {}; leave one out", folder,
            o.profile.folder);
  }
  const std::string name = command.get_name();
  const bool opens_session = name != "plan";
  const bool given = !o.profile.folder.empty();
  if (o.speaks() && (given || opens_session))
    o.profile.folder = profile_folder(given ? std::optional(o.profile.folder) : std::nullopt);
  // All processes record events, also those without the variable of the environment.
  const bool writes = runtime::Agreement(o.step.session.group).any(!o.profile.folder.empty());
  if (!writes) return run(o);
  o.profile.given = given_options(command, o);
  o.step.session.profile =
      "";  // This command writes the report, with what the session does not know.
  if (opens_session) o.step.session.events = kReportEvents;
  if (o.speaks())
    o.profile.folder = make_report_folder(
        o.profile.folder, name == "eval" || name == "predict" ? "inference" : "training");
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

bool write_profile(const ToolOptions& o, const Programs& programs, Session& session) {
  std::optional<Error> refusal;
  bool written = false;
  try {
    written = write_report(o, programs, session.executable(), {});
  } catch (const Error& e) {
    refusal = e;
  }
  if (session.agreement().any(refusal.has_value())) {
    if (refusal) throw *refusal;
    fail(ErrorKind::kIo, "--profile: the first process cannot write to {}", o.profile.folder);
  }
  return session.agreement().any(written);
}

void write_measured(const ToolOptions& o, const Programs& programs, const Session& session,
                    std::vector<report::MeasuredRun> measured) {
  if (!measured.empty())
    write_late(o, programs, session.executable(),
               {.measured = std::move(measured),
                .event_bytes = session.event_bytes(),
                .feeds = session.feed_statistics()});
}

void Measuring::after_run() {
  if (!active_ || is_done()) return;
  if (++ended_ == 2) runs_.clear();
  report::merge_runs(runs_, measured_run(session_, program_));
}

bool Measuring::is_done() const { return !active_ || ended_ > report::kMeasuredRuns; }

}  // namespace sluice::tool
