#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sluice/train/strategies/accumulators.h"
#include "sluice/train/strategies/flowing_values.h"
#include "sluice/train/strategies/kept_results.h"
#include "sluice/train/strategies/step_variables.h"

namespace sluice::train {

/// A graph that runs tasks, and its tensors that all micro-batches share.
struct StepGraph {
  Graph& graph;
  std::map<DeviceId, nn::NamedTensors> weights =
      {};  ///< Indexed by device; running variables, too.
  /// NetworkGraph::inputs, by device.
  std::map<DeviceId, std::map<MicroBatch::Value, Tensor>> inputs = {};
  MicroBatch::ByUse accumulators = {};
  std::map<TaskBlocks, Tensor> counters = {};  ///< Keyed by backward task.
  KeptResults kept = {};
  Tensors iterations = {};   ///< Iteration numbers of the loops around the graph.
  Tensor total_weight = {};  ///< Sum of NetworkGraph::total_weight, if there is one.
};

/// The blocks that the tasks of a loop run.
struct LoopBlocks {
  std::set<BlockId> forward;
  std::set<BlockId> backward;
  std::set<TaskBlocks> backward_tasks;
  std::map<DeviceId, std::set<BlockId>> by_device;
};
/// `depth` loops are around the loop. Error{kUsage} for a norm or an update in it.
LoopBlocks blocks_of(const OrderLoop& loop, size_t depth, const PlacedStages& stages);

/// Returns the difference of the micro-batches of consecutive iterations of a loop. `depth` loops
/// are around it.
int64_t micro_batches_of_iteration(const OrderLoop& loop, size_t depth);

/// Adds inputs to `body`, the body of a loop in the graph of `outside`, for the tensors that its
/// blocks use: weights, accumulators, counters, inputs of the run, kept results named in `results`,
/// and iterations of the loops around it. `given` gets them with their tensors outside.
StepGraph make_body(const StepGraph& outside, Graph& body, const Cut& cut, const LoopBlocks& blocks,
                    const std::vector<std::string>& results, TensorMap& given);

/// The remote variables of a block during its loop over micro-batches: weights, running variables
/// and accumulators.
class LoopVariables {
 public:
  /// All arguments must outlive this object.
  LoopVariables(const Task& task, const BlockGraph& block, DeviceId device,
                const StepVariables& variables, const Accumulators& accumulators)
      : task_(task),
        block_(block),
        device_(device),
        variables_(variables),
        accumulators_(accumulators) {}

  /// Loads the variables into the graph around the loop, and makes them inputs of its body.
  void load(const StepGraph& outside, StepGraph& inside, TensorMap& given);
  /// Stores the running variables and accumulators after the loop.
  void store(const StepGraph& outside) const;

 private:
  const Task& task_;
  const BlockGraph& block_;
  DeviceId device_;
  const StepVariables& variables_;
  const Accumulators& accumulators_;
  std::map<std::string, Tensor> running_;  ///< Keyed by key.
  MicroBatch::ByUse sums_;
};

}  // namespace sluice::train
