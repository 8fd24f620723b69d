#pragma once
#include "sluice/report/plan_report.h"
#include "tools/json_record.h"

namespace sluice::tool {

/// Adds everything that the text of a plan shows: "fits", "memories" with kinds and objects,
/// "function_list", "transfer_list", "forecasts" and "suggestions".
void add_plan(const report::PlanReport& report, const report::Outlook& outlook, JsonRecord& record);

}  // namespace sluice::tool
