#pragma once
#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// Checks the memory needs of a plan. Error{kDoesNotFit} if a device or tier needs more than its
/// budget, or an arena more than exe::kMaxSize bytes. The message for a budget has the bytes
/// needed, the budget and the holders of the peak. It also has the smallest budget with a plan and
/// the live-set bound.
void check_budgets(const exe::Executable& executable);

}  // namespace sluice::compiler
