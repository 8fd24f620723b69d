#pragma once
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// Writes exe::RemoteTrace of every program, for transfers in the order of the graphs. The checker
/// computes the same traces for the plan's order, so that its proof covers where transfers have
/// been moved to. A program with more transfers than the checker follows gets none. `before_calls`:
/// see number_transfers, for each function. The entries must lie in their buffers.
void announce_remote(exe::Executable& executable,
                     const std::vector<std::vector<int32_t>>& before_calls);

}  // namespace sluice::compiler
