#pragma once
#include "sluice/compiler/body.h"
#include "sluice/target/target.h"

namespace sluice::compiler {

/// Before: each kernel node is one op. After: an f32 op with OpDef::parts is replaced by its parts,
/// one node each, where the target runs the first part that reads operand 0
/// - in one kernel with the producer of one of its operands, or
/// - in several tasks, but the op in one. Parts that are views become views.
/// Returns the number of ops split.
int64_t split_ops(Body& body, const Target& target);

}  // namespace sluice::compiler
