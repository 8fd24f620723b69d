#pragma once
#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// Sets the `sync` flags of a function. A step with this flag starts after a barrier.
/// A step gets a barrier if it accesses bytes that a step since the last barrier also accesses, and
/// one of them writes. Accesses by the same worker need no barrier: worker 0 runs all single-task
/// steps, in order. Accesses by callers and callees are unknown. Therefore the first step of a
/// function and the first step after a call get a barrier.
/// Returns the number of barriers.
int64_t synchronise(exe::Function& function);

}  // namespace sluice::compiler
