#include "sluice/train/strategies/step_blocks.h"

#include "sluice/train/pipeline/block_times.h"

namespace sluice::train {
namespace {

// Phases have a counter of micro-batches for each block, stages one for all of their blocks. The
// loops of phases and of given orders need accumulators for one micro-batch, too.
WeightGradients weight_gradients_of(const Options& options, const Strategy& strategy) {
  if (options.accumulate == 1 && !std::holds_alternative<OrderedExecution>(strategy) &&
      !has_phases(options, strategy))
    return WeightGradients::kReturn;
  return std::holds_alternative<PhasedExecution>(strategy) ? WeightGradients::kAccumulate
                                                           : WeightGradients::kAccumulateShared;
}

}  // namespace

bool has_phases(const Options& options, const Strategy& strategy) {
  const auto* phased = std::get_if<PhasedExecution>(&strategy);
  return phased != nullptr && (phased->group == 0 || phased->group == options.accumulate) &&
         options.locations.activations == Location::kRemote;
}

StepBlocks::StepBlocks(const NetworkGraph& network, const WeightRules& rules,
                       const Options& options, const Strategy& strategy)
    : has_phases(train::has_phases(options, strategy)),
      cut(train::cut(network, has_phases ? SeedOps::kApart : SeedOps::kInBlocks)),
      weight_gradients(weight_gradients_of(options, strategy)),
      gradients(differentiate(network, cut, rules, weight_gradients)) {
  recompute(cut, options.recompute, gradients);
  uses = trained_weights(rules, cut, gradients);
  if (!has_phases) return;
  stages = stages_of(strategy, network, cut, block_times(cut, gradients, options.rates));
  find_stage_of();
  grouping = group_blocks(network, cut, gradients, rules, stage_of);
}

StepBlocks::StepBlocks(const NetworkGraph& network, const BlockDevices& block_devices,
                       bool has_rows)
    : cut(train::cut(network)),
      gradients(cut.blocks.size()),
      stages(stages_of(block_devices, cut)) {
  find_stage_of();
  if (has_rows) grouping = group_blocks(network, cut, {}, {}, stage_of);
}

void StepBlocks::find_stage_of() {
  stage_of.resize(cut.blocks.size(), StageId(0));
  for (const StageId s : stages.ids()) {
    for (const BlockId b : stages[s].blocks) stage_of[b] = s;
  }
}

}  // namespace sluice::train
