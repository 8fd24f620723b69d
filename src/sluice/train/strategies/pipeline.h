#pragma once
#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/strategies/pipeline_layout.h"
#include "sluice/train/strategies/step_variables.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// Adds the programs of a step that is resident, sharded, pipelined, or phased with activations on
/// the device (build_training()). The streams of `training` exist. Adds the program "eval" too, by
/// build_eval().
///
/// A step runs the tasks of its order (order/strategies.h). A value that a task makes in one
/// iteration of the loop for a task of a later one is carried by the loop, once for each iteration
/// between them. A resident step has one stage, so its loop runs one micro-batch at a time. Phases
/// with activations on the device have one stage, too, and run micro-batches one after another.
void build_pipeline(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                    const WeightRules& rules, nn::Optimizer& optimizer, const Options& options,
                    const Strategy& strategy, const Options& inference, Training& training);

/// Adds the program "eval" alone, which runs the forward tasks of its stages in the iterations of
/// evaluation_order() (build_inference()). The streams of `training` exist.
void build_pipelined_eval(Ir ir, const NetworkGraph& eval, const Options& options,
                          const Strategy& strategy, Training& training);

/// Adds the program "eval" beside a training program whose weights it reads. A run has
/// `inference.device_iterations` micro-batches. The streams of `training` exist. Blocks that are
/// not in `places` run where the block before them runs. If blocks have places, `strategy` is
/// sharded or pipelined.
void build_eval(Ir ir, const NetworkGraph& eval, const StepVariables& variables,
                const BlockPlaces& places, const Strategy& strategy, const Options& inference,
                Training& training);

}  // namespace sluice::train
