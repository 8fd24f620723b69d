#pragma once
#include "tools/options.h"

namespace CLI {
class App;
}

namespace sluice::tool {

/// Loads the samples of --dataset, if it is given, and gives the model their shape. A model whose
/// sizes depend on its samples takes those of the weights, if they are given, except sizes that the
/// command line has.
void use_dataset(const CLI::App& command, ToolOptions& options);

/// Loads the inputs of --dataset for `sluice predict` as UserData::test, and gives the model the
/// sizes of the weights. Error{kUsage} if --dataset, --to or the weights are missing, or if --to
/// has another ending than .npz and .csv.
void use_inputs(const CLI::App& command, ToolOptions& options);

}  // namespace sluice::tool
