#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: the device computes entries of remote buffers. After: entries that depend only on
/// constants, loop counters and arguments are index expressions. Arguments that only such entries
/// need are index arguments of the calls. Scalars that nothing reads any more are not computed.
/// Returns the number of entries folded.
int64_t fold_entries(Program& program, const Context& context);

}  // namespace sluice::compiler
