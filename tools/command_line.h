#pragma once
#include <memory>

#include "sluice/runtime/process_group.h"

namespace sluice::tool {

/// Whether the command line has --single-process. To be read before the process joins a group, so
/// the words are not parsed.
bool is_single_process(int argc, char** argv);

/// Parses the command line, checks that every option has an effect, and runs the command. Returns
/// the exit code. `group` has the processes of mpirun; null for one process. Error{kUsage} for a
/// wrong command line, and the errors of the command.
int run_command_line(int argc, char** argv, const std::shared_ptr<runtime::ProcessGroup>& group);

}  // namespace sluice::tool
