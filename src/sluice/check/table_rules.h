#pragma once
#include "sluice/check/findings.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// The rules about tables: arenas, tiers and their budgets, variables, constants, remote buffers,
/// channels, parameters of functions, and what programs enter.
void check_tables(const exe::Executable& executable, Findings& findings);

}  // namespace sluice::check
