#pragma once
#include <compare>
#include <optional>
#include <set>
#include <vector>

#include "sluice/train/order/dependences.h"
#include "sluice/train/pipeline/stages.h"
#include "sluice/train/strategies/micro_batch.h"

namespace sluice::train {

/// A tensor of a micro-batch: a value of the network or its gradient.
struct FlowingValue {
  bool is_gradient = false;
  MicroBatch::Value value;
  auto operator<=>(const FlowingValue&) const = default;
};

/// A value that flows from the task that makes it to the tasks of one device that read it.
struct Flow {
  FlowingValue value;
  int64_t bytes = 0;
  DeviceId device{0};  ///< Device of the readers.
  MicroBatchTask made_by;
  std::vector<MicroBatchTask> read_by;  ///< In the order of time.
};

/// Finds the flows between the tasks of a micro-batch (tasks_of_micro_batch()). A task that adds to
/// a gradient makes it anew. The first reader of a field or a seed makes it. Values in `shared` do
/// not flow. Gradients do not read values in `remote`, which may be null.
std::vector<Flow> find_flows(const std::vector<MicroBatchTask>& tasks, const PlacedStages& stages,
                             const Cut& cut, const BlockGradients& gradients,
                             const std::set<MicroBatch::Value>& shared,
                             const RemoteActivations* remote);

/// Whether a task reads a value that a task of another loop makes.
bool cross_loops(const std::vector<Flow>& flows);

/// Returns the values that a block reads in a forward or backward task: those of earlier blocks and
/// of itself, fields, seeds and gradients. Values in `remote`, which may be null, are not read.
std::vector<FlowingValue> reads_forward(const BlockGraph& block);
std::vector<FlowingValue> reads_backward(const BlockGraph& block,
                                         const std::optional<BlockGradient>& gradient,
                                         const RemoteActivations* remote);

/// Returns the blocks of a task in the order in which it runs them. A task that names a block names
/// it by a constant.
std::vector<BlockId> blocks_of(const Task& task, const PlacedStages& stages);

}  // namespace sluice::train
