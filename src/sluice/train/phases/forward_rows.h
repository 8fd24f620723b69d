#pragma once
#include <vector>

#include "sluice/train/order/strategies.h"
#include "sluice/train/strategies/step_blocks.h"
#include "sluice/train/strategies/step_variables.h"

namespace sluice::train {

/// Returns the groups of an evaluation network. Rows are a loop if their weights are rows of
/// remote variables, the next row reads all results of a row, and no other block reads them.
std::vector<PhasedBlocks> evaluated_blocks(const NetworkGraph& network, const StepBlocks& blocks,
                                           const StepVariables& variables);

/// Runs the rows of a group forward in a loop in `graph`. `batch` has the values that row 0 reads,
/// and gets the results of the last row. `tied` returns a weight that is no row.
void forward_rows(Graph& graph, const Cut& cut, const BlockGroup& group, StepVariables& variables,
                  const MicroBatch::Weights& tied, IoMode io_mode, MicroBatch& batch);

}  // namespace sluice::train
