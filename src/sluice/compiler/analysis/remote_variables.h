#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Checks the variables that live in remote buffers. Only remote loads may read such a variable.
/// Error{kUsage} naming the variable if
/// - its remote buffer or entry does not exist,
/// - its spec differs from that of the buffer's entries,
/// - another variable lives in the same entry, or
/// - a node other than a remote load reads it.
void check_remote_variables(const Program& program);

}  // namespace sluice::compiler
