#pragma once
#include "sluice/check/findings.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// Checks the tables: arenas, tiers and their budgets, variables, constants, remote buffers,
/// channels, parameters of functions, and the lists and entry frames of programs.
void check_tables(const exe::Executable& executable, Findings& findings);

}  // namespace sluice::check
