#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/report/report.h"
#include "sluice/session/session.h"
#include "tools/options.h"
#include "tools/programs.h"

namespace CLI {
class App;
}

namespace sluice::tool {

/// Runs a command. With --profile, creates the folder of its report first, so that a run whose
/// report cannot be written is refused before it begins. A plan that does not fit writes its report
/// before its error is thrown. `command` has the flags that were given, and its name is one of
/// train, eval, predict, plan and bench.
int run_with_profile(const CLI::App& command, ToolOptions o, int (*run)(const ToolOptions&));

/// With --profile, writes the report of an executable. Returns whether the report is asked for.
/// Error{kIo} if a file cannot be written.
bool write_profile(const ToolOptions& o, const Programs& programs,
                   const exe::Executable& executable,
                   std::vector<report::Suggestion> suggestions = {});
/// Writes the report of a session that will run. Returns in each process of a group whether the
/// first one has written the report, so that all of them measure. Error{kIo} in all of them if it
/// cannot.
bool write_profile(const ToolOptions& o, const Programs& programs, Session& session);

/// Measures runs of a program for a report.
class Measuring {
 public:
  /// Measures nothing if no report is asked for.
  Measuring(Session& session, std::string program, bool has_report)
      : session_(session), program_(std::move(program)), active_(has_report) {}

  /// Call after each run of the program, in each process. Keeps report::kMeasuredRuns runs. The
  /// first run fills caches, so a second one replaces it.
  void after_run();
  /// Whether all runs that count are measured.
  bool is_done() const;
  std::vector<report::MeasuredRun> take() { return std::move(runs_); }

 private:
  Session& session_;
  std::string program_;
  bool active_;
  int64_t ended_ = 0;
  std::vector<report::MeasuredRun> runs_;
};

/// Writes the report again, with measured runs, or warns if a file cannot be written. Requires that
/// write_profile() has written it.
void write_measured(const ToolOptions& o, const Programs& programs, const Session& session,
                    std::vector<report::MeasuredRun> measured);

}  // namespace sluice::tool
