#pragma once
#include "sluice/compiler/compile.h"

namespace sluice::compiler {

/// Error{kDoesNotFit} if an arena total exceeds a budget: bytes needed, budget, holders of the peak, the smallest
/// budget with a plan and the live-set bound.
void check_budgets(const exe::Executable& executable, const CompileOptions& options);

}  // namespace sluice::compiler
