#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: graphs whose handles name storage and whose ops write into it. After: a body for each graph that the entries
/// reach and each role that it has. Each version is a value; the output of an updating node is tied to the value that it
/// overwrites; a by-value input that the graph writes is copied first. The body of a loop returns, after the carried
/// values, the last version of each carried input that is by reference; its iteration is index parameter 0. Nodes name
/// the devices that their ops name. Returns the number of bodies. Error{kUsage} for a collective of groups that do not
/// tile the replicas, and for a conditional that communicates.
int64_t functionalise(Program& program, const Context& context);

}  // namespace sluice::compiler
