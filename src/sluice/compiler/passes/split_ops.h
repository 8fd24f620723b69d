#pragma once
#include "sluice/compiler/body.h"
#include "sluice/target/target.h"

namespace sluice::compiler {

/// Before: one op a kernel node. After: an f32 op with OpDef::parts is those ops, a node each, where the target runs the
/// first of them in one kernel with the op that makes what it reads, or in tasks where it has one for all. Returns how
/// many ops were split.
int64_t split_ops(Body& body, const Target& target);

}  // namespace sluice::compiler
