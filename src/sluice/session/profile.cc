#include "sluice/session/profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "sluice/base/sys.h"
#include "sluice/report/measured_times.h"
#include "sluice/runtime/process_group.h"
#include "sluice/session/measured.h"
#include "sluice/session/session.h"

namespace sluice {
namespace {

std::filesystem::path absolute(const std::string& folder) {
  return std::filesystem::absolute(folder + "/").lexically_normal();
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Warns once in a process.
void warn_once(std::atomic<bool>& warned, const std::string& text) {
  if (!warned.exchange(true)) sys::print_stderr("{}\n", text);
}

// Returns whether SLUICE_OPTIONS asks for reports.
bool options_ask(const std::string& text) {
  if (text.empty()) return false;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  require(json.is_object(),
          "SLUICE_OPTIONS: must be JSON such as {{\"profile\":\"all\"}}, got '{}'", text);
  static std::atomic<bool> warned{false};
  std::string others;
  for (const auto& [key, value] : json.items()) {
    if (key != "profile") others += fmt::format("{}'{}'", others.empty() ? "" : ", ", key);
  }
  if (!others.empty())
    warn_once(warned, fmt::format("SLUICE_OPTIONS: ignored {}; its key is profile", others));
  if (!json.contains("profile")) return false;
  const nlohmann::json& profile = json["profile"];
  require(profile == "all" || profile == "none",
          "SLUICE_OPTIONS: profile must be \"all\" or \"none\", got {}", profile.dump());
  return profile == "all";
}

std::string folder_of_environment() {
  const std::string folder = variable("SLUICE_PROFILE");
  if (!folder.empty()) return folder;
  return options_ask(variable("SLUICE_OPTIONS")) ? "./profile" : "";
}

// Whether a run of the program changes a variable.
bool changes_variables(const exe::Executable& executable, const exe::Program& program) {
  for (const exe::Final& final : program.finals) {
    const exe::VariablePlan& v = executable.variables[final.variable];
    if (final.value != exe::kNoValue && final.value != v.value) return true;
  }
  for (const exe::RemoteTrace& trace : program.remote) {
    const auto holds = [&](const exe::VariablePlan& v) { return v.buffer == trace.buffer; };
    if (trace.stores > 0 &&
        std::any_of(executable.variables.begin(), executable.variables.end(), holds))
      return true;
  }
  return false;
}

// Returns "training", "inference", "training-2" and so on.
std::string next_part(const exe::Executable& executable) {
  static std::mutex lock;
  static std::map<std::string, int> counts;
  std::string part = "inference";
  for (const exe::Program& p : executable.programs) {
    if (changes_variables(executable, p)) part = "training";
  }
  const std::lock_guard hold(lock);
  const int number = ++counts[part];
  return number == 1 ? part : fmt::format("{}-{}", part, number);
}

report::Report report_of(const exe::Executable& executable, int threads) {
  const report::Rates rates{.threads = threads};
  report::Report report = report::make_report(executable, rates);
  report.model = program_invocation_short_name;
  report.machine = fmt::format("assumed: {:.0f} GF/s and copies of {:.0f} GB/s a worker",
                               rates.flops / 1e9, rates.copies / 1e9);
  return report;
}

}  // namespace

std::string profile_folder(const std::optional<std::string>& chosen) {
  if (!chosen) return folder_of_environment();
  if (chosen->empty()) return "";
  std::string folder;
  try {
    folder = folder_of_environment();
  } catch (const Error&) {  // It would not count.
  }
  static std::atomic<bool> warned{false};
  if (!folder.empty() && absolute(folder) != absolute(*chosen)) {
    warn_once(warned,
              fmt::format("{} is ignored: the report goes to {}",
                          variable("SLUICE_PROFILE").empty() ? "SLUICE_OPTIONS" : "SLUICE_PROFILE",
                          *chosen));
  }
  return *chosen;
}

std::string make_report_folder(const std::string& folder, const std::string& part) {
  sys::make_folder(folder);
  std::string path = folder + "/" + part;
  sys::make_folder(path);
  sys::check_replaceable(path + "/report.json");
  return path;
}

void write_report(const std::string& folder, const report::Report& report) {
  const auto write = [&](const char* name, const std::string& text) {
    sys::replace_file(folder + "/" + name, std::as_bytes(std::span(text)));
  };
  write("report.json", report::to_json(report));
  write("report.html", report::to_html(report));
  write("trace.json", report::to_chrome_trace(report));
}

std::unique_ptr<SessionReport> SessionReport::open(const SessionOptions& options) {
  if (options.group != nullptr && options.group->rank() != 0) return nullptr;
  std::string folder = profile_folder(options.profile);
  if (folder.empty()) return nullptr;
  return std::unique_ptr<SessionReport>(new SessionReport(std::move(folder)));
}

void SessionReport::begin(const exe::Executable& executable) {
  folder_ = make_report_folder(folder_, next_part(executable));
}

void SessionReport::warn(const std::exception& e) const {
  sys::print_stderr("report in {}: {}; it is not complete\n", folder_, e.what());
}

void SessionReport::write_refused(const exe::Executable& executable,
                                  const Error& refusal) noexcept {
  try {
    begin(executable);
    report::Report report = report_of(executable, executable.devices[exe::DeviceId(0)].workers);
    report.refusal = refusal.what();
    write_report(folder_, report);
  } catch (const std::exception& e) {
    warn(e);
  }
}

// A run that ended with an error has not executed all steps of its plan.
std::vector<report::MeasuredRun> SessionReport::last_run(const Session& session) const {
  std::vector<report::MeasuredRun> runs = measured_here(session, program_);
  if (whole_) return runs;
  for (report::MeasuredRun& run : runs) {
    run.trace.complete = false;
    run.seconds = -1;
    run.devices.clear();
  }
  return runs;
}

// Adds the last run to those of its program. The first one fills caches, so a second one replaces
// it.
void SessionReport::keep_last_run(const Session& session) {
  std::vector<report::MeasuredRun>& runs = measured_[program_];
  if (++ended_[program_] == 2) runs.clear();
  report::merge_runs(runs, last_run(session));
}

void SessionReport::begin_run(const Session& session, const std::string& program) {
  if (!program_.empty()) {
    if (program_ != program || ended_[program_] <= report::kMeasuredRuns) {
      keep_last_run(session);
    } else {
      ++ended_[program_];
    }
  }
  program_ = program;
  whole_ = false;
}

void SessionReport::write(const Session& session) const noexcept {
  try {
    report::Report report =
        report_of(session.executable(), session.executable().devices[exe::DeviceId(0)].workers);
    report.pipeline = pipeline_;
    report.event_bytes = session.event_bytes();
    report.feeds = session.feed_statistics();
    SessionReport all = *this;
    if (!program_.empty()) all.keep_last_run(session);
    std::vector<report::MeasuredRun> measured;
    for (auto& [program, runs] : all.measured_)
      std::move(runs.begin(), runs.end(), std::back_inserter(measured));
    report::add_measured(std::move(measured), report);
    write_report(folder_, report);
  } catch (const std::exception& e) {
    warn(e);
  }
}

}  // namespace sluice
