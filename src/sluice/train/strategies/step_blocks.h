#pragma once
#include <optional>
#include <vector>

#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/cut/block_groups.h"
#include "sluice/train/options.h"
#include "sluice/train/pipeline/stages.h"
#include "sluice/train/strategies/pipeline_layout.h"

namespace sluice::train {

/// The blocks of a program and their gradients.
struct StepBlocks {
  /// The blocks of a training program.
  StepBlocks(const NetworkGraph& network, const WeightRules& rules, const Options& options,
             const Strategy& strategy);
  /// The blocks of the evaluation of a trained model. With `has_rows`, equal blocks are grouped.
  StepBlocks(const NetworkGraph& network, const BlockDevices& block_devices, bool has_rows);

  StepBlocks(const StepBlocks&) = delete;
  StepBlocks& operator=(const StepBlocks&) = delete;

  /// Whether one loop runs a block for all micro-batches, with values in remote memory
  /// (phases/phases.h).
  bool has_phases = false;
  Cut cut;
  WeightGradients weight_gradients = WeightGradients::kReturn;
  BlockGradients gradients;
  TrainedWeights uses;             ///< The pointers refer to `cut`.
  PlacedStages stages;             ///< Only of phases and evaluations.
  Ids<BlockId, StageId> stage_of;  ///< Empty if not known.
  Grouping grouping;               ///< No groups if blocks are not rows.

 private:
  void find_stage_of();
};

/// Whether the strategy runs phases in loops of all micro-batches.
bool has_phases(const Options& options, const Strategy& strategy);

}  // namespace sluice::train
