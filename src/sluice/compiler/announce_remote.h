#pragma once
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// Says for each program which stores the loads of remote buffers find when transfers run in the order of the graphs, so
/// that a proof of the plan is one of where its transfers have been moved to (exe/remote_ledger.h). Nothing is said of
/// programs with more transfers than the checker follows. `before_calls`: of each
/// function, see number_transfers. The entries must lie in their buffers.
void announce_remote(exe::Executable& executable,
                     const std::vector<std::vector<int32_t>>& before_calls);

}  // namespace sluice::compiler
