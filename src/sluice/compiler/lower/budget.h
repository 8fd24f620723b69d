#pragma once
#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// Error{kDoesNotFit} if a device or tier needs more than its budget: bytes needed, budget, holders of the peak, the
/// smallest budget with a plan and the live-set bound.
void check_budgets(const exe::Executable& executable);

}  // namespace sluice::compiler
