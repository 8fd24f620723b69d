#pragma once
#include <functional>
#include <string>
#include <vector>

#include "sluice/session/session.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// Sets the weights and running variables of a session on `training` from a safetensors file that
/// Session::save() wrote, a part at a time. The state of the optimizer does not change. An average
/// is set, too, or starts as its weight if the file lacks the average and has the weight.
/// LoadResult::unused has the names in the file that are no variable of `training`. Error{kBadFile}
/// if a variable has another spec or, with LoadOptions::strict, is missing; then no variable is
/// set. Error{kUsage} if processes read different values, and for LoadOptions::names as for
/// Session::load().
LoadResult load_weights(Session& session, const Training& training, const std::string& path,
                        const LoadOptions& options);
/// Does the same without options. Returns LoadResult::unused.
std::vector<std::string> load_weights(Session& session, const Training& training,
                                      const std::string& path);

/// Sets the average of each weight for whose path `starts` returns true to the weight.
void start_averages(Session& session, const Training& training,
                    const std::function<bool(const std::string& path)>& starts);

/// Sets each average that `result` lists as missing to its weight, unless the weight is missing,
/// too. Removes these averages from the list.
void start_missing_averages(Session& session, const Training& training, LoadResult& result);

/// Key in the metadata of a file of TrainingModel::save() with averages: its value is the decay.
inline constexpr const char* kAverageKey = "ema_decay";

/// Returns options with which averages set the weights of a program that has none. `path` is the
/// file that is loaded. Returns `options` if its metadata does not have kAverageKey. Averages that
/// `options` gives another name keep it.
LoadOptions averages_as_weights(const std::string& path, LoadOptions options = {});

/// The errors of load_weights() for a variable that is missing or has another spec. Reads the index
/// of the file alone.
void check_weights(const Training& training, const std::string& path);

/// Error{kBadFile}, which names load_weights(), if a safetensors file has all weights and running
/// variables of `training`, but not the whole state of its optimizer.
void require_state(const Training& training, const std::string& path, const LoadOptions& options);

}  // namespace sluice::train
