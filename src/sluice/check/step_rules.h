#pragma once
#include "sluice/check/findings.h"
#include "sluice/check/function_facts.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// Checks each step by itself, without running the program.
void check_steps(const exe::Executable& executable, const FactsOfFunctions& facts,
                 Findings& findings);

}  // namespace sluice::check
