#pragma once
#include "sluice/compiler/body.h"
#include "sluice/compiler/options.h"
#include "sluice/target/target.h"

namespace sluice::compiler {

/// Before: each kernel node is one op. After: an op is joined to the node that computes one of its
/// inputs where the target runs both as one kernel. The joint node must have a position after the
/// producers of its inputs, and before the readers of its outputs. All nodes that overwrite its
/// inputs or outputs must come later. A result that only the joint node reads is not stored. Adds
/// to the report. Returns the number of ops that were joined to another.
int64_t fuse(Body& body, const Target& target, FusionReport& report);

}  // namespace sluice::compiler
