#pragma once
#include "sluice/compiler/body.h"
#include "sluice/target/target.h"

namespace sluice::compiler {

/// Before: one op a kernel node. After: an f32 op with OpDef::shared_work whose operand nobody but its gradients reads
/// makes the derivative too, and keeps that instead of the operand; the gradients are products with it. Where the target
/// runs the op's parts as one kernel. Returns how many ops were changed.
int64_t share_work(Body& body, const Target& target);

}  // namespace sluice::compiler
