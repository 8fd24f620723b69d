#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice::transforms {

/// A loop-carried value.
struct CarriedValue {
  Tensor first;   ///< The value of iteration 0, made before the loop.
  Tensor before;  ///< Stands for the value at the begin of an iteration: see repeat_last_ops().
  Tensor after;   ///< The value at the end of an iteration: any tensor of the graph.
};

/// Runs the last ops of a graph several times.
///
/// Before: ops 0 to n - 1. Neither outputs nor tensors that a caller still uses are results of op
/// `first` or of later ops. Each CarriedValue::before is the only result of one of these ops, which
/// is removed. After: ops 0 to first - 1, and a loop of `trips` >= 1 iterations, whose body has the
/// other ops. Tensors that exist before the loop are invariant inputs of it, by reference if the
/// body writes them. A stream that the body uses has `trips` times as many entries. `condition` is
/// a scalar bool that was made before the loop and that the last ops write, or empty. An iteration
/// begins only while it is true.
///
/// Returns the carried values after the last iteration. Error{kUsage} if the body writes both a
/// tensor and a view of it that has its own memory (Graph::keep_in_step).
Tensors repeat_last_ops(Graph& graph, OpIndex first, int64_t trips,
                        const std::vector<CarriedValue>& carried = {}, const Tensor& condition = {},
                        std::source_location where = std::source_location::current());

}  // namespace sluice::transforms
