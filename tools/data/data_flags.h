#pragma once
#include "tools/flags.h"
#include "tools/options.h"

namespace sluice::tool {

/// Adds the options for the user's own samples to a group of the help.
void add_user_data(Flags flags, const char* group, ToolOptions& options);
/// Adds the options for the samples and first values of a run to a group of the help.
void add_samples(Flags flags, const char* group, ToolOptions& options);

/// Loads the samples of --dataset, if it is given, and gives the model their shape.
void use_dataset(ToolOptions& options);

}  // namespace sluice::tool
