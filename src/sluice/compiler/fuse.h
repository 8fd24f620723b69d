#pragma once
#include <functional>

#include "sluice/compiler/body.h"
#include "sluice/compiler/compile.h"
#include "sluice/target/target.h"

namespace sluice::compiler {

/// Before: one op a kernel node. After: an op joins the node that makes one of its inputs where the target runs both as
/// one kernel, and where the joint node has a place after all that it reads and before all that reads or overwrites
/// what it touches. A result that nobody else reads is never stored. `target_of` gives a device's target. Adds to the
/// report; returns how many ops joined another.
int64_t fuse(Body& body, const std::function<const Target&(int32_t)>& target_of,
             FusionReport& report);

}  // namespace sluice::compiler
