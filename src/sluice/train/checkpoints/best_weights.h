#pragma once
#include <map>
#include <optional>
#include <string>

#include "sluice/base/sys.h"
#include "sluice/train/checkpoints/manifest.h"
#include "sluice/train/checkpoints/run.h"

/// The file with the weights of the best validation of a run (FitOptions::save_best). Each
/// checkpoint has a copy of it, as the run may replace the file after its last checkpoint.
namespace sluice::train {

/// Returns the metadata of the file.
std::map<std::string, std::string> best_metadata(const std::string& run,
                                                 const BestValidation& best);

/// Error{kBadFile} unless a file has the weights of the best validation of a run.
void check_best(const std::string& path, const std::string& run, const BestValidation& best);

/// Opens a file with the weights of the best validation of a run; nothing without them. A file
/// that replaces it later is not read.
std::optional<sys::File> open_best(const std::string& path, const Run& run);

/// Copies an open file of `bytes` bytes. `path` is its name in errors.
CheckpointFile copy_to_checkpoint(const sys::File& file, const std::string& path, int64_t bytes,
                                  const std::string& folder, const std::string& name);

/// Replaces the file at `path` by the copy in a checkpoint, whose name is `saved.name`, unless it
/// has these bytes. Nothing happens if the copy does not exist.
void restore_best(const std::string& path, const CheckpointFile& saved);

}  // namespace sluice::train
