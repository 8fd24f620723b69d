#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "sluice/models/model.h"
#include "tools/options.h"

namespace sluice::tool {

class Flags;

/// Returns the models in which an option has another default than `usual`, with that default:
/// "mnist-rts: 8, mnist-phased: 4".
std::string defaults_of_models(std::string_view flag, std::string_view usual);

/// Returns the defaults of the model itself, which replace those of the options. A call has one
/// update with --strategy phased, and with --steps, which may not be whole calls.
std::vector<models::Default> model_defaults(const ToolOptions& options);

/// Adds the model and the sizes of its network.
void add_model(Flags flags, ToolOptions& options);
/// Adds the dropout of commands that train.
void add_dropout(Flags flags, ToolOptions& options);

}  // namespace sluice::tool
