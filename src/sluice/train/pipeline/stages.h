#pragma once
#include <string>
#include <vector>

#include "sluice/train/cut/ids.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

struct Cut;
struct NetworkGraph;

/// A stage of a network that was cut.
struct AssignedStage {
  std::vector<BlockId> blocks;  ///< Ascending.
  DeviceId device{0};
  int step = 0;  ///< Number of its step in the schedule; concurrent stages have the same.
};

using PlacedStages = Ids<StageId, AssignedStage>;

inline constexpr int kMaxDevices = 4096;

/// Returns the stages that a strategy names; null for a strategy without stages.
const Stages* given_stages(const Strategy& strategy);

/// Returns the stages of texts such as "B1+B2" and "B3". One text that is a number is a number of
/// stages; Error{kUsage} if it is below 2 or above kMaxDevices.
Stages parse_stages(const std::vector<std::string>& texts);

/// Finds the blocks and devices of stages. `seconds` has the time of each block. A number of stages
/// is a cut into stages of about equal time (balanced_cut()). Without stages, each block is a
/// stage. A stage that does not name a device runs on the device that its blocks name. If no stage
/// has a device by these rules, stage s runs on device s.
///
/// Error{kUsage}: a number of stages where blocks name devices; a device that is not in [0,
/// kMaxDevices); a first stage that is concurrent; a stage without blocks; a block in two stages
/// or without a stage; an unknown block; stages that are not in the order of the cut; blocks of a
/// stage that name different devices, or another device than the stage; stages with a device beside
/// stages without one; fewer than two stages, where concurrent stages count as one; concurrent
/// stages that read values or weights of each other.
PlacedStages assign_stages(const Stages& stages, const NetworkGraph& network, const Cut& cut,
                           const Ids<BlockId, double>& seconds);

}  // namespace sluice::train
