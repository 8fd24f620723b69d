#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/train/order/order.h"

namespace sluice::train {

/// Reads and writes of a block's tasks that limit their order.
struct BlockDependences {
  std::string name = {};
  std::vector<size_t> reads = {};  ///< Earlier blocks whose values it reads.
  bool has_gradient = false;
  std::vector<size_t> reads_gradients = {};  ///< Later blocks whose gradients its own reads.
  std::vector<size_t> weights = {};          ///< Numbers of the weights that it reads.
  /// Whether its forward task uses a stream, or updates a running variable or a kept result:
  /// micro-batches ascend.
  bool ascends = false;
};

/// A step, as far as it limits the order of tasks.
struct StepDependences {
  std::vector<BlockDependences> blocks = {};
  std::vector<std::vector<size_t>> stages = {};  ///< Blocks of each stage, ascending.
  int64_t micro_batches = 1;
  bool has_update = true;
  bool has_seeds = false;
};

/// Checks an order against a step. Error{kUsage} names the tasks that conflict:
/// - each block runs once for each micro-batch, forward and, with a gradient, backward;
/// - a task follows those whose values and gradients it reads;
/// - the micro-batches of a block's backward task ascend, and those of its forward task if it
///   `ascends`;
/// - a weight is updated once, after the last task that reads it or adds to its gradient, and after
///   the last forward task: an update may read results of all micro-batches.
/// Its time does not depend on the number of micro-batches.
void check_order(const Order& order, const StepDependences& step);

/// Returns the largest number of micro-batches that each of `stages` stages has in flight, in an
/// order without loops over rows. A micro-batch is in flight from the begin of its first forward
/// task to the end of its last backward task, or of its forward task if the order has no backward
/// ones. It is the number of activation sets that a stage stores.
std::vector<int64_t> max_in_flight(const Order& order, size_t stages);

/// A task as a micro-batch meets it.
struct MicroBatchTask {
  Task task;
  int64_t iteration = 0;  ///< Iteration of the loop, relative to that of the first task.
};

/// Returns the forward and backward tasks of one micro-batch in the order of time: those of the
/// loop over micro-batches, or those of micro-batch 0 if the order has no such loop; then each has
/// an iteration of its own.
std::vector<MicroBatchTask> tasks_of_micro_batch(const Order& order);

/// The loop over updates, if the order is one: the number of its trips and its body. Otherwise 1
/// and all items.
struct UpdateLoop {
  int64_t trips = 1;
  const std::vector<OrderItem>& body;
};
UpdateLoop update_loop(const Order& order);

}  // namespace sluice::train
