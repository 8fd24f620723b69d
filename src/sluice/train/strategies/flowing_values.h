#pragma once
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "sluice/train/strategies/flows.h"

namespace sluice::train {

/// Stage and block that a task names; without a block, all blocks of the stage.
using TaskBlocks = std::pair<StageId, std::optional<int64_t>>;

inline TaskBlocks key_of(const Task& task) {
  return {task.stage, task.block ? std::optional(task.block->constant) : std::nullopt};
}
/// Whether two tasks run the same blocks in the same direction.
inline bool is_same(const Task& a, const Task& b) {
  return a.kind == b.kind && key_of(a) == key_of(b);
}

/// The graph of a task, and its position in the order.
struct TaskContext {
  Graph& graph;
  std::span<const Tensor> iterations;  ///< Iteration numbers of the loops, outermost first.
  size_t outer = 0;                    ///< Loops around these that have no iteration in the graph.
};

/// The tensors that tasks make for later tasks of a micro-batch. A value between tasks of one body
/// is a tensor of its graph; a loop carries it from one iteration to a later one. A value that a
/// task in another loop reads waits in an entry of a remote buffer of the device that makes it.
class FlowingValues {
 public:
  /// The arguments but `flows` must outlive this object. Error{kUsage} for flows that loops cannot
  /// have.
  FlowingValues(const Cut& cut, const BlockGradients& gradients, const PlacedStages& stages,
                std::vector<Flow> flows, const Options& options);
  FlowingValues(const FlowingValues&) = delete;
  FlowingValues& operator=(const FlowingValues&) = delete;

  /// Whether a value waits in remote memory, so that tasks read the iterations of loops.
  bool has_buffers() const { return !buffers_.empty(); }

  /// Returns the values that a task reads and that earlier tasks have made. Adds loads of values
  /// that wait.
  MicroBatchValues read(const TaskContext& context, const Task& task);
  /// Sends the values that a task has made to all tasks that read them. `found` is the result of
  /// read(), `values` has all values of the task.
  void write(const TaskContext& context, const Task& task, const MicroBatchValues& found,
             const MicroBatchValues& values);

  /// Enters a loop, whose body is `body`. Adds an input for each flow and each iteration between
  /// its maker and its last reader, and returns the values of the first iteration.
  Tensors enter_loop(const OrderLoop& loop, Graph& body);
  /// Returns the values for the next iteration, after all tasks of the body.
  Tensors results_of_loop(const OrderLoop& loop) const;
  /// Leaves the loop. `results` are those after the last iteration.
  void leave_loop(const OrderLoop& loop, const Tensors& results);

 private:
  using Reader = std::pair<FlowingValue, DeviceId>;  // A value and the device of its readers.
  using ByReader = std::map<Reader, Tensor>;
  // A tensor that a loop carries.
  struct Slot {
    Reader reader;
    int64_t micro_batch = 0;  // In iteration 0.
    int64_t factor = 1;       // Micro-batches from one iteration to the next.
    auto operator<=>(const Slot&) const = default;
  };
  using TaskKey = std::pair<TaskKind, TaskBlocks>;
  // A value that waits in remote memory, and the device that makes it. A gradient that a task adds
  // to on this device replaces the one before.
  using Waiting = std::pair<FlowingValue, DeviceId>;
  struct Buffer {
    int64_t capacity = 1;  // Micro-batches that wait at a time.
    std::optional<RemoteBuffer> buffer = {};
  };

  /// `known` has the slots of each loop.
  void add(const Flow& flow, std::map<const OrderLoop*, std::set<Slot>>& known);
  RemoteEntry entry(const TaskContext& context, const Task& task, int64_t capacity) const;

  const Cut& cut_;
  const BlockGradients& gradients_;
  const PlacedStages& stages_;
  const Options& options_;
  std::vector<Flow> flows_;
  std::map<TaskKey, std::vector<const Flow*>> made_by_;
  std::map<const OrderLoop*, std::vector<Slot>> slots_;
  std::map<Waiting, Buffer> buffers_;
  std::map<std::pair<TaskKey, FlowingValue>, Waiting> loads_;  ///< Keyed by reader and value.
  /// Tensors by micro-batch, for the graph of each loop that was entered. The number of the
  /// micro-batch is the one of the first iteration.
  std::vector<std::map<int64_t, ByReader>> values_{1};
};

}  // namespace sluice::train
