#pragma once
#include "sluice/compiler/body.h"
#include "sluice/target/target.h"

namespace sluice::compiler {

/// Before: each kernel node is one op. After: an f32 op y = f(x) with OpDef::shared_work also
/// computes its derivative, and its gradients are products with this derivative. The body keeps the
/// derivative instead of x. This requires that only the op and its gradients read x, and that the
/// target runs the op's parts as one kernel. Returns the number of ops changed.
int64_t share_work(Body& body, const Target& target);

}  // namespace sluice::compiler
