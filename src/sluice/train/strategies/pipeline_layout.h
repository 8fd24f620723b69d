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
  PlacedStages stages;
  Order order;
  std::optional<PipelinePlan> plan;  ///< Absent if the step is resident.
};

/// Lays out a step of any strategy, or the evaluation of its micro-batches. Gradients do not read
/// values in `remote`, which may be null.
PipelineLayout lay_out(const Strategy& strategy, const NetworkGraph& network, const Cut& cut,
                       const BlockGradients& gradients, const TrainedWeights& weights,
                       const RemoteActivations* remote, nn::RunMode mode, const Options& options);

/// Returns the stages of a strategy; without stages, one stage has all blocks. `times` is
/// indexed by block.
PlacedStages stages_of(const Strategy& strategy, const NetworkGraph& network, const Cut& cut,
                       const Ids<BlockId, StageTimes>& times);

/// Lays out a step with loops of phases (phases/phases.h).
PipelineLayout lay_out_phases(const PlacedStages& stages, const std::vector<PhasedBlocks>& blocks,
                              PhasedUpdates updates, bool has_seeds, const OrderCounts& counts);

/// Whether phases have stages or groups, so that values between blocks are kept in remote memory.
bool has_groups(const Strategy& strategy);

/// The device and the step of blocks, by name.
using BlockDevices = std::map<std::string, std::pair<DeviceId, int>>;

/// Returns the stages of the evaluation of a trained model. Without devices, all blocks are one
/// stage; else a stage is a run of blocks on one device. A block without a device has that of the
/// previous block.
PlacedStages stages_of(const BlockDevices& block_devices, const Cut& cut);

/// Lays out the evaluation of a trained model. If there are `rows`
/// (phases/forward_rows.h), its order is row_order(). The layout has no plan.
PipelineLayout lay_out_evaluation(const PlacedStages& stages, const Strategy& strategy,
                                  const Options& options, const std::vector<PhasedBlocks>& rows);

/// The inputs of a run, which all micro-batches share.
std::set<MicroBatch::Value> shared_values(const NetworkGraph& network);

}  // namespace sluice::train
