#pragma once
#include "tools/flags.h"
#include "tools/options.h"

namespace sluice::tool {

/// Error{kUsage} for options of a command line that have no effect, or that exclude each other.
void check_needs(const CLI::App& command, const ToolOptions& o);

}  // namespace sluice::tool
