#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Writes exe::RemoteTrace of every program, for transfers in the order of the graphs. The checker computes the same
/// traces for the plan's order, so that its proof covers where transfers have been moved to. A program with more
/// transfers than the checker follows gets none. The entries must lie in their buffers.
void announce_remote(Program& program);

}  // namespace sluice::compiler
