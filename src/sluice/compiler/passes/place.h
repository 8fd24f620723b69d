#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: a node names its device or inherits its caller's. After: each body has the device that it is called on, and
/// every node has a device of its own; a body that is called on several devices has a copy for each. Returns the number
/// of nodes that inherited. Error{kUsage} for a device that is not there.
int64_t place(Program& program, const Context& context);

}  // namespace sluice::compiler
