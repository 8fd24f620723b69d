#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: a node for each call. After: the nodes of a callee replace the call, on the caller's
/// values, if the callee
/// - has one call site,
/// - is a few kernels, or
/// - is made of transfers that may overlap the caller's work.
/// Returns the number of calls replaced.
int64_t inline_calls(Program& program, const Context& context);

}  // namespace sluice::compiler
