#pragma once
#include "sluice/check/findings.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// The rules that need no run: budgets, workspace, persistent bytes, and each step by itself.
void check_each_step(const exe::Executable& executable, Findings& findings);

}  // namespace sluice::check
