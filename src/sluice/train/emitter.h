#pragma once
#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// Adds the programs "train" and "eval" of a step (build_training()). The streams of `training`
/// exist.
///
/// A step runs the tasks of its order (order/strategies.h). A value that a later iteration of the
/// same loop reads is a carried value of that loop; with n iterations in between, there are n
/// copies of it. A value that another loop reads is stored in remote memory. A resident step has
/// one stage, so its loop runs one micro-batch at a time.
void emit_training(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                   const WeightRules& rules, nn::Optimizer& optimizer, const Options& options,
                   const Strategy& strategy, const Options& inference, Training& training);

/// Adds the program "eval" alone, which runs the forward tasks of its stages in the iterations of
/// evaluation_order() (build_inference()). The streams of `training` exist.
void emit_inference(Ir ir, const NetworkGraph& eval, const Options& options,
                    const Strategy& strategy, Training& training);

}  // namespace sluice::train
