#pragma once
#include <vector>

#include "sluice/compiler/body.h"
#include "sluice/compiler/functionalise.h"
#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// One body per device that has nodes (device 0 always). Before: nodes name their devices. After: a value made on one
/// device and read on another is sent once, right after it is made, and received right before its first use; channels
/// with room for all their messages are added to the executable. Error{kUsage} for a device that is not there, a write to
/// a tensor of another device, and a stream or remote buffer used on several.
std::vector<Body> project(Body body, const Globals& globals, const FactTable& facts,
                          exe::Executable& executable);

/// Gives each value that a program's functions receive the name of what is sent, known once both ends are placed.
void name_messages(const exe::Program& program, exe::Executable& executable);

}  // namespace sluice::compiler
