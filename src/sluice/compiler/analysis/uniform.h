#pragma once
#include "sluice/ir/ir.h"

namespace sluice::compiler {

/// Checks that the condition of each loop is equal on all replicas, so that they exit together. It
/// is equal if it is computed from constants, iterations, variables that all replicas hold and
/// update equally, and results of collectives over all replicas. Error{kUsage} that names the loop,
/// and the stream, buffer or variable on which its condition depends.
void check_conditions(const Ir& ir);

}  // namespace sluice::compiler
