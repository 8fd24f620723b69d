#pragma once
#include "sluice/ir/ir.h"

namespace sluice {

/// Checks every invariant of the IR. Operands exist before their use, specs match their rules,
/// versions increase by one, aliases share storage, and call sites match their callees.
/// Error{kInternal} naming graph and op if an invariant is broken.
void verify(const Graph& graph);
/// Runs check_calls(), then verifies all graphs.
void verify(const Ir& ir);

/// Checks the calls of the whole program. Error{kUsage} if a graph calls itself or if calls are
/// nested deeper than 400. Error{kUsage} naming the call if the inputs or outputs of a graph
/// changed after it was called.
void check_calls(const Ir& ir);

}  // namespace sluice
