#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/order/strategies.h"
#include "sluice/train/pipeline/pipeline_plan.h"
#include "sluice/train/strategies/flows.h"

namespace sluice::train {

/// The stages of a step, the order of its tasks and the values that flow between them.
struct PipelineLayout {
  std::vector<PlacedStage> stages;
  Order order;
  std::optional<PipelinePlan> plan;  ///< Absent if the step is resident.
};

/// Lays out a step of any strategy, or the evaluation of its micro-batches. Without stages, one
/// stage has all blocks. Gradients do not read values in `remote`, which may be null.
PipelineLayout lay_out(const Strategy& strategy, const NetworkGraph& network, const Cut& cut,
                       const std::vector<std::optional<BlockGradient>>& gradients,
                       const TrainedWeights& weights, const RemoteActivations* remote,
                       nn::RunMode mode, const Options& options);

/// Lays out a step with loops of phases (phases/phases.h) on one stage.
PipelineLayout lay_out_phases(const Cut& cut, const std::vector<PhasedBlocks>& blocks,
                              PhasedUpdates updates, const OrderCounts& counts);

/// Whether phases have stages or groups, so that values between visits wait in remote memory.
bool has_groups(const Strategy& strategy);

/// The device and the step of blocks, by name.
using BlockPlaces = std::map<std::string, std::pair<int, int>>;

/// Lays out the evaluation of a network beside its training. Without places, all blocks are one
/// stage; else a stage is the blocks of one place. A block without a place has that of the block
/// before it. If there are `rows` (phases/forward_rows.h), these are all blocks, which then have no
/// places. The layout has no plan.
PipelineLayout lay_out_evaluation(const BlockPlaces& places, const Strategy& strategy,
                                  const Cut& cut, const Options& options,
                                  const std::vector<PhasedBlocks>& rows);

/// The inputs of a run, which all micro-batches share.
std::set<MicroBatch::Value> shared_values(const NetworkGraph& network);

}  // namespace sluice::train
