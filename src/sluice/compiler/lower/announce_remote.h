#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Records for each program of the executable which stores the loads of remote buffers find when transfers run in the
/// order of the graphs: the checker proves that the plan, whose transfers have been moved, finds the same
/// (exe/remote_ledger.h). Programs with more transfers than the checker follows have no record. The entries must lie in
/// their buffers.
void announce_remote(Program& program);

}  // namespace sluice::compiler
