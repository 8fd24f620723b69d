#pragma once
#include <string>
#include <vector>

#include "sluice/models/model.h"
#include "tools/flags/flag_table.h"
#include "tools/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sluice::tool {

/// Adds the flags of a command to its parser.
void add_flags(CLI::App& app, Command command);

/// Sets the options that a parsed command names, and those that have a default of the model if
/// `has_model`. Error{kUsage} for a wrong value, and for an option without its prerequisite.
void set_options(const CLI::App& app, Command command, bool has_model, ToolOptions& options);

/// Sets the options that may be given with --sweep.
void set_sweep_options(const CLI::App& plan, ToolOptions& options);

/// Returns the defaults of the model itself, which replace those of the options. A call has one
/// update with --strategy phased, and with --steps, which may not be whole calls.
std::vector<models::Default> model_defaults(const CLI::App& app, const ToolOptions& options);

/// Returns the default of an option; "off" for one without a value, "" if there is none.
std::string default_of(const CLI::Option& option);

}  // namespace sluice::tool
