#pragma once
#include "tools/options.h"

namespace CLI {
class App;
}

namespace sluice::tool {

/// Loads the samples of --dataset, if there is one, and sets the shape of the model's input. Sizes
/// of the model that depend on its samples are those of the weights, if there are any, except sizes
/// that are flags.
void use_dataset(const CLI::App& command, ToolOptions& options);

/// Sets the sizes of the model for `sluice generate` to the sizes in --weights. Sets --tokens to 0,
/// the rest of the context, if the flag is absent. Error{kBadFile} if the file has no sizes.
void use_generator(const CLI::App& command, ToolOptions& options);

/// Loads the inputs of --dataset for `sluice predict` as UserData::test, and sets the sizes of
/// the model to those of the weights. Error{kUsage} if --dataset, --to or the weights are missing,
/// or if --to has another ending than .npz and .csv.
void use_inputs(const CLI::App& command, ToolOptions& options);

}  // namespace sluice::tool
