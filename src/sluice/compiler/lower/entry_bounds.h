#pragma once
#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// Error{kUsage} naming the buffer, the entries and the op's place if some run of a program moves an entry that its remote
/// buffer does not have. Follows every call and iteration on which an entry depends. Entries that the device computes are
/// left to the run.
void check_entries(const exe::Executable& executable);

}  // namespace sluice::compiler
