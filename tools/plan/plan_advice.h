#pragma once
#include <vector>

#include "sluice/report/plan_report.h"
#include "tools/options.h"
#include "tools/programs.h"

namespace sluice::tool {

/// Returns options that make a plan smaller, the smallest plan first. Each is compiled and kept if
/// it saves at least a hundredth of the device's bytes, or of the tiers' at no cost to the device.
/// Options that would take more than half a second together, at `seconds` each, have no bytes and
/// come last.
std::vector<report::Suggestion> suggestions(const ToolOptions& options, const Programs& programs,
                                            const report::PlanReport& plan, double seconds);

}  // namespace sluice::tool
