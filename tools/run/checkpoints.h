#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/report/plan_report.h"
#include "sluice/train/checkpoints/checkpoints.h"
#include "tools/json_record.h"
#include "tools/options.h"

namespace sluice::tool {

/// Returns the options of the command line that decide the bits of a training of `steps` steps,
/// in addition to train::Options.
std::vector<train::NamedOption> bit_options(const ToolOptions& options, int64_t steps);

/// Returns the host memory that checkpoints need in addition to a plan: the copy of the variables
/// that the first process writes.
std::vector<report::KindBytes> host_buffers(const ToolOptions& options,
                                            const exe::Executable& executable);
/// DoesNotFit if the budget of remote memory does not leave these bytes.
void check_host_buffers(const ToolOptions& options, const exe::Executable& executable);
/// Adds this memory to a record, if there is any.
void add_host_buffers(const ToolOptions& options, const exe::Executable& executable,
                      JsonRecord& record);

/// Continues the run of --resume, and reports it. Nothing happens without that flag.
void resume_run(train::TrainingModel& model, const ToolOptions& options, int64_t steps);

/// Opens the folder of --checkpoint; nothing without that flag.
std::optional<train::Checkpoints> open_checkpoints(const train::TrainingModel& model,
                                                   const ToolOptions& options, int64_t steps,
                                                   std::map<std::string, std::string> metadata);

/// Reports the checkpoints of a training, and the time that it waited for them.
void log_checkpoints(const train::Checkpoints& checkpoints, const ToolOptions& options);

/// Returns an error with the checkpoint from which the training can be continued.
Error with_checkpoint(const Error& error, const train::Checkpoints& checkpoints);

/// Prints a line for each checkpoint in a folder. Error{kNoCheckpoint} unless one is whole.
void inspect_folder(const std::string& folder);

}  // namespace sluice::tool
