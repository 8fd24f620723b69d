#pragma once
#include <vector>

#include "sluice/report/plan_report.h"
#include "tools/options.h"
#include "tools/programs.h"

namespace sluice::tool {

/// Returns options that make a plan smaller, the smallest plan first. Each option is compiled. It
/// is kept if it saves at least a hundredth of the device's bytes, or of the tiers' bytes at no
/// cost to the device. An option is not compiled if the total time would exceed `max_seconds`, if
/// each option takes the time of `programs`. Options that are not compiled have no bytes and are
/// last.
std::vector<report::Suggestion> suggestions(const ToolOptions& options, const Programs& programs,
                                            const report::PlanReport& plan,
                                            double max_seconds = 0.5);

}  // namespace sluice::tool
