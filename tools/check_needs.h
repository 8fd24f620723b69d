#pragma once
#include "tools/options.h"

namespace CLI {
class App;
}

namespace sluice::tool {

/// Error{kUsage} for options of a command line that have no effect, or that exclude each other.
void check_needs(const CLI::App& command, const ToolOptions& o);

/// Error{kUsage} for options that a form of `sluice plan` does not have.
void check_form(const CLI::App& command, const ToolOptions& o);

/// Returns whether `sluice plan` plans a model. Error{kUsage} for options that contradict each
/// other.
bool plan_needs_model(const CLI::App& command, const PlanOptions& plan);

/// Returns whether `sluice bench` runs without a model. Error{kUsage} for flags of the other way.
bool bench_needs_suite(const CLI::App& app);

}  // namespace sluice::tool
