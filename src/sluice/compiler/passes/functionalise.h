#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: graphs whose handles name storage and whose ops write into it. After: one body for each
/// graph that the entries reach and each of its roles.
/// - Each version of a tensor is a value. The output of an updating node is tied to the value that
///   it overwrites. A by-value input that the graph writes is copied first.
/// - The body of a loop has the iteration as index parameter 0. It returns the carried values, then
///   the last version of each carried by-reference input that it writes.
/// - Nodes name the devices that their ops name.
/// Returns the number of bodies. Error{kUsage} if the groups of a collective do not tile the
/// replicas, if a conditional communicates, or if the condition of a loop
/// may differ between replicas.
int64_t functionalise(Program& program, const Context& context);

}  // namespace sluice::compiler
