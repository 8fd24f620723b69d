#pragma once
#include <map>
#include <string>

#include "tools/options.h"

namespace CLI {
class App;
}

namespace sluice::tool {

/// Returns the sizes of a model that saves them (models::Model::saves_sizes) as metadata of its
/// weights: "sluice.blocks": "4".
std::map<std::string, std::string> sizes_metadata(const ModelOptions& options);

/// If --weights is a folder with checkpoints of a training, or one of them, replaces it by the file
/// of variables of the newest whole one. Does nothing for another folder. Error{kNoCheckpoint}
/// naming the damage if none is whole; Error{kUsage} if several processes wrote it, each a file.
void use_checkpoint(ToolOptions& options);

/// Whether --weights is a folder, with a checkpoint of Hugging Face.
bool is_checkpoint(const ModelOptions& options);

/// Whether the model saves its sizes, and the file of --weights or --torch-weights has them.
bool has_saved_sizes(const ModelOptions& options);

/// Sets the sizes of such a model to the sizes in the file. Error{kUsage} if a flag sets another
/// value, and Error{kBadFile} for a size that is out of range.
void read_saved_sizes(const CLI::App& command, ToolOptions& options);

}  // namespace sluice::tool
