#pragma once
#include "sluice/ir/ir.h"

namespace sluice::transforms {

/// Replaces every op Sum (of two or more tensors) by a chain of Add.
///
/// Before: any graph that passes verify().
/// After: the same values in f32 (f16 and bf16 round after each add); each addend is added as soon as it and those before
/// it are there, so that it need not live until the last one. Handles stay valid: the last Add makes the Sum's output.
void decompose_sum(Graph& graph);

}  // namespace sluice::transforms
