#pragma once
#include "sluice/ir/ir.h"

namespace sluice {

/// Checks every invariant of the IR: operands exist before their use, specs match their rules, versions ascend one by
/// one, aliases share storage, call sites match their callees. Error{kInternal} naming graph and op.
void verify(const Graph& graph);
/// The same of all graphs, after check_calls.
void verify(const Ir& ir);

/// What only the whole program shows of its calls. Error{kUsage} if a graph calls itself, if calls are nested deeper
/// than 400, or if a graph got other inputs or outputs after it was called, naming the call.
void check_calls(const Ir& ir);

}  // namespace sluice
