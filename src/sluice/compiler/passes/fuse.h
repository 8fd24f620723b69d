#pragma once
#include "sluice/compiler/body.h"
#include "sluice/compiler/options.h"
#include "sluice/target/target.h"

namespace sluice::compiler {

/// Before: one op a kernel node. After: an op joins the node that makes one of its inputs where the target runs both as
/// one kernel, and where the joint node has a place after all that it reads and before all that reads or overwrites
/// what it touches. A result that nothing else reads is never stored. Adds to the report. Returns the number of ops that
/// joined another.
int64_t fuse(Body& body, const Target& target, FusionReport& report);

}  // namespace sluice::compiler
