#pragma once
#include <compare>
#include <optional>
#include <set>
#include <vector>

#include "sluice/train/pipeline/schedule.h"
#include "sluice/train/pipeline/stages.h"
#include "sluice/train/strategies/micro_batch.h"

namespace sluice::train {

/// A tensor of a micro-batch: a value of the network or its gradient.
struct FlowingValue {
  bool is_gradient = false;
  MicroBatch::Value value;
  auto operator<=>(const FlowingValue&) const = default;
};

/// The task at one end of a flow.
struct FlowEnd {
  size_t stage = 0;
  bool backward = false;
  int64_t iteration = 0;  ///< Iteration of micro-batch 0.
};

/// A value that flows from the task that makes it to the tasks of one device that read it.
struct Flow {
  FlowingValue value;
  int64_t bytes = 0;
  int device = 0;  ///< Device of the readers.
  FlowEnd made_by;
  FlowEnd read_by;  ///< The last reader.
};

/// Finds the flows between tasks of a pipeline. A task that adds to a gradient makes it anew. The
/// first reader of a field or a seed makes it. Values in `shared` do not flow. Gradients do not
/// read values in `remote`, which may be null.
std::vector<Flow> find_flows(const PipelineOrder& order, const std::vector<PlacedStage>& stages,
                             const Cut& cut,
                             const std::vector<std::optional<BlockGradient>>& gradients,
                             const std::set<MicroBatch::Value>& shared,
                             const RemoteActivations* remote);

}  // namespace sluice::train
