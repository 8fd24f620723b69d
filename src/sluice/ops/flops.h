#pragma once
#include "sluice/ir/op_def.h"

namespace sluice {

/// Returns the floating-point operations of an op, computed from its definition.
double flops_of(const OpView& op);

}  // namespace sluice
