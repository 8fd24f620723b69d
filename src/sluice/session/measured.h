#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sluice/report/report.h"

namespace sluice {

class Session;
namespace runtime {
class Agreement;
}

/// Returns what the replicas did in the last run, a run of `program`: how often transfers, messages
/// and collectives ran, and the events if SessionOptions::events is set. No run may be in progress.
///
/// In a group each process makes the call and gets the facts of all processes. Times are those of
/// the first process's clock (clock_differences()).
std::vector<report::MeasuredRun> measured_run(Session& session, const std::string& program);

/// Returns what the devices of this process alone did.
std::vector<report::MeasuredRun> measured_here(const Session& session, const std::string& program);

/// Returns by how many nanoseconds the clock of each process is ahead of the first one's. `now`
/// reads this process's clock. Each process makes the call. In one exchange all processes send
/// their times. Several exchanges are made; the exchange with the shortest time on the first
/// process counts. The error of the result is at most that time.
std::vector<int64_t> clock_differences(runtime::Agreement& agreement,
                                       const std::function<int64_t()>& now);

}  // namespace sluice
