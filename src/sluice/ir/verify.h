#pragma once
#include "sluice/ir/ir.h"

namespace sluice {

/// Checks every invariant of the IR: operands exist before their use, specs match their rules, versions ascend one by
/// one, aliases share storage, call sites match their callees, no graph calls itself. Error{kInternal} naming graph and op.
void verify(const Graph& graph);
void verify(const Ir& ir);

}  // namespace sluice
