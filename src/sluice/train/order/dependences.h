#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sluice/train/order/order.h"

namespace sluice::train {

/// Reads and writes of a block's tasks that limit their order.
struct BlockDependences {
  std::string name = {};
  std::vector<BlockId> reads = {};  ///< Earlier blocks whose values it reads.
  bool has_gradient = false;
  std::vector<BlockId> reads_gradients = {};  ///< Later blocks whose gradients its own reads.
  std::vector<size_t> weights = {};           ///< Numbers of the weights that it reads.
  /// Whether its forward task uses a stream, or updates a running variable or a kept result:
  /// micro-batches ascend.
  bool ascends = false;
};

/// The counts of a run, and the tasks that follow its micro-batches.
struct OrderCounts {
  int64_t micro_batches = 1;  ///< For each update.
  int64_t updates = 1;        ///< For each run.
  bool has_update = true;     ///< False: evaluation, which has forward tasks only.
  bool has_norm = false;      ///< Whether updates read the norm of all gradients.
};

/// A step, as far as it limits the order of tasks.
struct StepDependences {
  Ids<BlockId, BlockDependences> blocks = {};
  Ids<StageId, std::vector<BlockId>> stages = {};  ///< Blocks of each stage, ascending.
  OrderCounts counts = {};
  bool has_seeds = false;  ///< Whether seeds are tasks of their own.
};

/// Checks an order against a step. Error{kUsage} names the tasks that conflict:
/// - each block runs once for each micro-batch, forward and, with a gradient, backward;
/// - a task follows those whose values and gradients it reads;
/// - the micro-batches of a block's backward task ascend; so does its forward task if the block
///   `ascends`;
/// - a weight is updated once, after the last task that reads it or adds to its gradient, and after
///   the last forward task: an update may read results of all micro-batches.
/// Its time does not depend on the number of micro-batches.
void check_order(const Order& order, const StepDependences& step);

/// Returns the largest number of micro-batches that each of `stages` stages has in flight, in an
/// order without loops over rows. A micro-batch is in flight from the begin of its first forward
/// task to the end of its last backward task, or of its forward task if the order has no backward
/// ones. It is the number of activation sets that a stage stores.
Ids<StageId, int64_t> max_in_flight(const Order& order, size_t stages);

/// A task as a micro-batch meets it.
struct MicroBatchTask {
  Task task = {};
  std::vector<const OrderLoop*> loops = {};  ///< Loops around it in an update, outermost first.
  size_t outer = 0;                          ///< Loops around these: 1 if updates are a loop.

  /// Returns the factor of loops[depth] in the number of the micro-batch.
  int64_t factor(size_t depth) const { return task.micro_batch.factor(outer + depth); }
};

/// Returns the forward and backward tasks of one micro-batch in the order of time, each pair of
/// blocks and direction once. A loop over rows has a task for each row, and is not one of `loops`.
/// If a task is written several times, for different micro-batches, the one in the deepest loop is
/// returned, else the first one. The pointers refer to the order.
std::vector<MicroBatchTask> tasks_of_micro_batch(const Order& order);

/// The distance between two tasks of a micro-batch, the later of which reads a value of the other.
struct TaskDistance {
  /// Iterations of the innermost loop around both, if these are the same loops; else absent.
  std::optional<int64_t> iterations;
  /// The number of micro-batches whose values exist at a time, if the loops differ.
  int64_t capacity = 1;
};
TaskDistance distance(const MicroBatchTask& maker, const MicroBatchTask& reader,
                      int64_t micro_batches);

/// The loop over updates, if the order is one: its trip count and its body. Otherwise 1 and all
/// items.
struct UpdateLoop {
  int64_t trips = 1;
  const std::vector<OrderItem>& body;
};
UpdateLoop update_loop(const Order& order);

/// Whether a loop, around which `depth` loops are, runs one task for one block after another.
bool is_row_loop(const OrderLoop& loop, size_t depth);

}  // namespace sluice::train
