#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Error{kUsage} naming the variable for one that lives in a remote buffer or entry that is not there, has another spec
/// than the buffer's entries, shares its entry with another variable, or is read by anything but a remote load.
void check_homes(const Program& program);

}  // namespace sluice::compiler
