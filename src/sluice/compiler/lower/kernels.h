#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Chooses the first kernel of the target's list that supports each op of a body, and counts its
/// floating-point operations. Returns the number of nodes. Error{kUsage} naming the op and the
/// dtype if no kernel supports an op.
int64_t choose_kernels(const Body& body, const Target& target, LoweredBody& lowered);

/// Chooses the kernels of all copies, because storage may have added some. Returns the number of
/// copies.
int64_t choose_copies(const Body& body, const Target& target, LoweredBody& lowered);

}  // namespace sluice::compiler
