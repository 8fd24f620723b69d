#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Computes exe::RemoteTrace of every program for transfers in the order of the graphs. The checker
/// computes the same traces for the order of the plan. Its proof therefore also covers transfers
/// that passes have moved. A program with more steps than the checker follows gets no trace.
/// Requires entries within their buffers (check_entries).
void announce_remote(Program& program);

}  // namespace sluice::compiler
