#include "sluice/train/strategies/step_blocks.h"

#include "sluice/train/strategies/pipeline_layout.h"

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
  return std::holds_alternative<PhasedExecution>(strategy) && !has_groups(strategy) &&
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
  if (has_phases) grouping = group_blocks(network, cut, gradients, rules);
}

StepBlocks::StepBlocks(const NetworkGraph& network, bool has_rows)
    : cut(train::cut(network)), gradients(cut.blocks.size()) {
  if (has_rows) grouping = group_blocks(network, cut, {});
}

}  // namespace sluice::train
