#pragma once
#include <map>

#include "sluice/train/strategies/step_variables.h"

namespace sluice::train {

/// Adds the blocks of an evaluation network to entry graph `main`, one after another. A block's
/// offloaded weights are loaded for that block only. `variables` are those of the training program.
/// `values` has the network's fields by network tensor, and gets the results of all blocks but
/// those inside a loop over rows.
void emit_evaluation(StepVariables& variables, const NetworkGraph& network, IoMode io_mode,
                     Graph& main, std::map<TensorId, Tensor>& values);

}  // namespace sluice::train
