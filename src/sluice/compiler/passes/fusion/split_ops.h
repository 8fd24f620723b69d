#pragma once
#include "sluice/compiler/body.h"
#include "sluice/target/target.h"

namespace sluice::compiler {

/// Before: each kernel node is one op. After: an f32 op with OpDef::parts is replaced by its parts,
/// one node each, where the target runs the first part
/// - in one kernel with the producer of its operand, or
/// - in several tasks, but the op in one.
/// Returns the number of ops split.
int64_t split_ops(Body& body, const Target& target);

}  // namespace sluice::compiler
