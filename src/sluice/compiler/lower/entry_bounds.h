#pragma once
#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// Checks the remote entries that each program moves, in every call and iteration on which an entry
/// depends. Entries that the device computes are not checked here. Error{kUsage} naming the buffer,
/// the entries and the op's source location if the remote buffer does not have an entry.
void check_entries(const exe::Executable& executable);

}  // namespace sluice::compiler
