#pragma once
#include "sluice/exe/executable.h"
#include "sluice/exe/findings.h"

namespace sluice::exe {

/// The rules that need no run: budgets, workspace, persistent bytes, and each step by itself.
void check_static(const Executable& executable, Findings& findings);

}  // namespace sluice::exe
