#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/report/report.h"
#include "sluice/session/options.h"

// Reports of sessions: the plan and the last run, as files (docs/report_schema.md).

namespace sluice {

class Session;

/// Number of events that each worker and I/O queue keeps for a report.
inline constexpr int64_t kReportEvents = 20'000;

/// Returns the folder for reports: `chosen`, a flag or an option, else that of the environment.
/// SLUICE_PROFILE=DIR names a folder; SLUICE_OPTIONS='{"profile":"all"}' means "./profile"; without
/// both, the result is empty. The first call warns if `chosen` replaces another folder of the
/// environment. Error{kUsage} if SLUICE_OPTIONS has another form.
std::string profile_folder(const std::optional<std::string>& chosen);

/// Creates the folder `part` in `folder`, and returns its path. Error{kIo} if a file cannot be
/// created there.
std::string make_report_folder(const std::string& folder, const std::string& part);

/// Writes report.json, report.html and trace.json to an existing folder. Error{kIo} if one of them
/// cannot be written.
void write_report(const std::string& folder, const report::Report& report);

/// The report that a session writes when it ends: its plan, the last run of each program, and the
/// minimum of the times of several runs of a program (report::kMeasuredRuns). The first session
/// of a process writes to `training` in its folder if its programs change variables, else to
/// `inference`; later ones to `training-2` and so on.
class SessionReport {
 public:
  /// Returns null if the options and the environment name no folder, and in all processes of a
  /// group but the first. Errors of profile_folder() and make_report_folder().
  static std::unique_ptr<SessionReport> open(const SessionOptions& options);

  /// Writes the report of a plan that exceeds a budget, before its error is thrown. Warns if a file
  /// cannot be written.
  void write_refused(const exe::Executable& executable, const Error& refusal) noexcept;
  /// Creates the folder for this plan.
  void begin(const exe::Executable& executable);
  /// Prepares a run of a program, and stores the last run if it was of another one.
  void begin_run(const Session& session, const std::string& program);
  /// The run has ended without an error.
  void end_run() { whole_ = true; }
  /// Shows the stages of the session's programs.
  void show(report::Pipeline pipeline) { pipeline_ = {std::move(pipeline)}; }
  /// Writes the report. Warns if a file cannot be written.
  void write(const Session& session) const noexcept;

 private:
  explicit SessionReport(std::string folder) : folder_(std::move(folder)) {}
  std::vector<report::MeasuredRun> last_run(const Session& session) const;
  void keep_last_run(const Session& session);
  void warn(const std::exception& e) const;

  std::string folder_;                    ///< begin() makes it the folder of the files.
  std::string program_;                   ///< Program of the last run; empty before the first one.
  bool whole_ = false;                    ///< Whether that run has ended without an error.
  std::map<std::string, int64_t> ended_;  ///< Runs by program, without the last run of all.
  std::map<std::string, std::vector<report::MeasuredRun>> measured_;  ///< Indexed by program.
  std::vector<report::Pipeline> pipeline_;
};

}  // namespace sluice
