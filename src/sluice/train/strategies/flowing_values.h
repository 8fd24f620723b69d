#pragma once
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sluice/train/strategies/flows.h"

namespace sluice::train {

/// Stage and block that a task names; without a block, all blocks of the stage.
using TaskBlocks = std::pair<int, std::optional<int64_t>>;

inline TaskBlocks key_of(const Task& task) {
  return {task.stage, task.block ? std::optional(task.block->constant) : std::nullopt};
}
/// Whether two tasks run the same blocks in the same direction.
inline bool is_same(const Task& a, const Task& b) {
  return a.kind == b.kind && key_of(a) == key_of(b);
}

/// The tensors that tasks have made for later tasks, by micro-batch and device of the readers. In
/// the body of a loop, micro-batches are those of its first iteration.
class FlowingValues {
 public:
  /// `remote` may be null. The arguments but `flows` must outlive this object.
  FlowingValues(const Cut& cut, const std::vector<std::optional<BlockGradient>>& gradients,
                const std::vector<PlacedStage>& stages, const RemoteActivations* remote,
                std::vector<Flow> flows);
  FlowingValues(const FlowingValues&) = delete;
  FlowingValues& operator=(const FlowingValues&) = delete;

  /// Returns the values that a task reads and that earlier tasks have made.
  MicroBatchValues read(int64_t micro_batch, const Task& task) const;
  /// Sends the values that a task has made to all devices that read them. `found` is the result of
  /// read(), `values` has all values of the task.
  void write(int64_t micro_batch, const Task& task, const MicroBatchValues& found,
             const MicroBatchValues& values);

  /// Enters the loop over micro-batches, whose body is `body`. Adds an input for each flow and each
  /// iteration between its maker and its last reader, and returns the values of the first
  /// iteration.
  Tensors enter_loop(Graph& body);
  /// Returns the values for the next iteration, after all tasks of the body.
  Tensors results_of_loop() const;
  /// Leaves the loop. `results` are those after the last iteration.
  void leave_loop(int64_t trips, const Tensors& results);

 private:
  using Reader = std::pair<FlowingValue, int>;  // A value and the device of its readers.
  using ByReader = std::map<Reader, Tensor>;
  // A tensor that the loop carries, and its micro-batch in iteration 0.
  struct Slot {
    Reader reader;
    int64_t micro_batch;
    bool operator==(const Slot&) const = default;
  };

  const Cut& cut_;
  const std::vector<std::optional<BlockGradient>>& gradients_;
  const std::vector<PlacedStage>& stages_;
  const RemoteActivations* remote_;
  std::vector<Flow> flows_;
  std::map<std::pair<TaskKind, TaskBlocks>, std::vector<const Flow*>> made_by_;
  std::map<int64_t, ByReader> values_;   ///< By micro-batch.
  std::map<int64_t, ByReader> outside_;  ///< In the graph around the loop.
  std::vector<Slot> slots_;
};

}  // namespace sluice::train
