#pragma once
#include <string>
#include <string_view>

#include "tools/options.h"

namespace sluice::tool {

class Flags;

/// Returns "(default: 1; mnist-rts: 8, mnist-phased: 4)": the default of an option, and the models
/// that have another one.
std::string default_of(std::string_view flag, std::string_view general);

/// Adds the model and the sizes of its network.
void add_model(Flags flags, ToolOptions& options);
/// Adds the dropout of commands that train.
void add_dropout(Flags flags, ToolOptions& options);

}  // namespace sluice::tool
