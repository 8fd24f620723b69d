#pragma once
#include <cstddef>
#include <cstdint>

#include "sluice/ir/ir.h"

namespace sluice::train {

/// Runs the last ops of an entry graph several times.
///
/// Before: ops 0 to n - 1. No output, and no tensor that a caller still uses, is a result of op
/// `first` or a later one.
/// After: ops 0 to first - 1, and a loop of `trips` >= 1 iterations, whose body has the other ops.
/// Tensors that exist before the loop are invariant inputs of it, by reference if the body writes
/// them. A stream that the body uses has `trips` times as many entries.
///
/// Returns the body.
Graph& repeat_last_ops(Graph& graph, size_t first, int64_t trips);

}  // namespace sluice::train
