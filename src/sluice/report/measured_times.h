#pragma once
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/report/report.h"

// Times of steps and devices: forecast by a plan, and measured in runs.

namespace sluice::report {

/// Number of runs of a program whose minima a report shows. The run before them is not measured,
/// unless it is the only one: it fills caches.
inline constexpr int kMeasuredRuns = 5;

/// Computes MeasuredRun::seconds, steps and devices from the events of one run.
void add_times(const exe::Executable& executable, MeasuredRun& run);

/// Adds later runs of the same replicas and programs to earlier ones: `earlier` then has the events
/// and counts of the later runs, and the minimum of each time.
void merge_runs(std::vector<MeasuredRun>& earlier, std::vector<MeasuredRun> later);

/// Returns the kernels that a run of a program executes and their times by device. `report` has the
/// functions.
void add_kernels(const exe::Executable& executable, const exe::Program& program,
                 const Report& report, ProgramReport& out);

/// Sets Report::measured, and the measured times of kernels and devices. Of several replicas, the
/// longest time counts. Kernels are sorted by their measured time.
void add_measured(std::vector<MeasuredRun> runs, Report& report);

/// Whether a kernel is the reference kernel of its operator, because no fast one supports its
/// dtypes, shapes and options.
bool is_reference(const StepReport& step);

}  // namespace sluice::report
