#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: entries of remote buffers are computed on the device. After: those that constants, loop counters and
/// arguments alone decide are index expressions; arguments that only such entries need are index arguments of the
/// calls, and nothing computes the scalars that nothing reads any more. Returns the number of entries folded.
int64_t fold_entries(Program& program, const Context& context);

}  // namespace sluice::compiler
