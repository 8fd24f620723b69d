#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "sluice/train/torch_weights.h"

namespace sluice::models {

/// Returns the JSON object in a file. Error{kBadFile} if it has other contents. Error{kIo} if it
/// cannot be read.
nlohmann::json read_json_object(const std::string& path);

/// Returns the weights of a checkpoint: a safetensors file, an index of several files
/// (`*.index.json`), or a folder with `model.safetensors.index.json` or `model.safetensors`.
/// Error{kBadFile} if an index names other than files of its own folder, or a tensor that its file
/// lacks. Also the errors of train::WeightFiles.
train::WeightFiles open_checkpoint(const std::string& path);

/// Returns the path of `config.json` in the folder `path`, or in the folder of the file `path`.
std::string config_path(const std::string& path);

}  // namespace sluice::models
