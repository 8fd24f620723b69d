#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: a node names its device or inherits that of its caller. After: each body has the device
/// on which it is called, and each node names a device. A body that is called on several devices
/// has a copy for each. Returns the number of nodes that inherited their device. Error{kUsage} for
/// a device that does not exist.
int64_t assign_devices(Program& program, const Context& context);

/// Moves each transfer to the device of its stream or remote buffer: the first device that uses it
/// in program order.
void move_transfers(Program& program);

}  // namespace sluice::compiler
