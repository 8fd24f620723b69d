#pragma once
#include <string>
#include <vector>

#include "sluice/session/session.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// Sets the weights and running variables of a session on `training` from a safetensors file that
/// Session::save() wrote, a part at a time. The state of the optimizer does not change.
/// LoadResult::unused has the names in the file that are no variable of `training`. Error{kBadFile}
/// if a variable has another spec or, with LoadOptions::strict, is missing; then no variable is
/// set. Error{kUsage} if processes read different values, and for LoadOptions::names as for
/// Session::load().
LoadResult load_weights(Session& session, const Training& training, const std::string& path,
                        const LoadOptions& options);
/// Does the same without options. Returns LoadResult::unused.
std::vector<std::string> load_weights(Session& session, const Training& training,
                                      const std::string& path);

/// The errors of load_weights() for a variable that is missing or has another spec. Reads the index
/// of the file alone.
void check_weights(const Training& training, const std::string& path);

/// Error{kBadFile}, which names load_weights(), if a safetensors file has all weights and running
/// variables of `training`, but not the whole state of its optimizer.
void require_state(const Training& training, const std::string& path, const LoadOptions& options);

}  // namespace sluice::train
