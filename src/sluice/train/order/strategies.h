#pragma once
#include <cstdint>
#include <vector>

#include "sluice/train/order/dependences.h"
#include "sluice/train/pipeline/schedule.h"

// A strategy is a pure function to an order (docs/design/0024-orders.md).

namespace sluice::train {

/// Returns the order in which stages run according to `schedule`: a ramp-up, a loop that runs each
/// task once in an iteration, a ramp-down, and the update. A resident step has one stage; a sharded
/// one has a sequential schedule.
Order staged_order(const PipelineOrder& schedule, const OrderCounts& counts);

/// Returns the order in which stages run groups of `group` micro-batches according to `schedule`. A
/// group runs the blocks of a stage one after another. Weights are updated at the end, or, if all
/// micro-batches are one group and no norm is needed, after their last gradient. Error{kUsage} if
/// `group` is not a divisor of the number of micro-batches.
Order grouped_order(const PipelineOrder& schedule, int64_t group, const StepDependences& step);

/// Neighbouring blocks that a phased step runs in a loop over rows, or one block.
struct PhasedBlocks {
  BlockId first{0};
  int64_t rows = 1;
  StageId stage{0};
  bool has_gradient = true;
  /// Rows whose forward phases, backward phases and updates apart from these are a loop. The other
  /// rows run before it.
  int64_t forward_loop = 0;
  int64_t backward_loop = 0;
  int64_t update_loop = 0;
};

/// How a phased step runs the micro-batches of a block.
enum class MicroBatchForm {
  kLoop,    ///< In a loop; values between blocks are entries of remote buffers.
  kInLine,  ///< Unrolled; values between blocks are tensors.
};

/// When a phased step updates the weights of a block.
enum class PhasedUpdates {
  kInBackward,  ///< At the end of its backward phase.
  kApart,       ///< After all backward phases, in the same order. A norm requires it.
};

/// Returns the order that runs one block after another, each for all micro-batches: forward in
/// ascending order of blocks and backward in descending order. The last block, if it has a
/// gradient, runs both as one task. `groups` cover the blocks.
Order phased_order(const std::vector<PhasedBlocks>& groups, MicroBatchForm form,
                   PhasedUpdates updates, bool has_seeds, const OrderCounts& counts);

/// Returns the order of an evaluation in which each micro-batch runs one block after another. Rows
/// with a forward loop run in it.
Order row_order(const std::vector<PhasedBlocks>& groups, const OrderCounts& counts);

}  // namespace sluice::train
