#pragma once
#include "tools/options.h"

namespace CLI {
class App;
}

namespace sluice::tool {

/// Refuses flags that exclude each other. Error{kUsage}.
void check_exclusions(const CLI::App& command);

/// Refuses options that the model, the data or the command do not have. Error{kUsage}.
void check_needs(const CLI::App& command, const ToolOptions& o);

/// Returns whether `sluice plan` plans a model. Error{kUsage} for options that contradict each
/// other.
bool plan_needs_model(const CLI::App& command);

/// Returns whether `sluice bench` runs without a model. Error{kUsage} for flags of the other way.
bool bench_needs_suite(const CLI::App& app);

}  // namespace sluice::tool
