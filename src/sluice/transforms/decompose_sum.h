#pragma once
#include "sluice/ir/ir.h"

namespace sluice::transforms {

/// Replaces every op Sum of two or more tensors by a chain of Add.
///
/// Before: any graph that passes verify().
/// After: the same values in f32. In f16 and bf16 each add rounds. An operand is added as soon as
/// it and the operands before it are computed, so that its memory can be freed early. Handles stay
/// valid: the last Add has the Sum's output.
void decompose_sum(Graph& graph);

}  // namespace sluice::transforms
