#pragma once
#include "sluice/report/report.h"
#include "sluice/train/pipeline/pipeline_plan.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// Returns the index of the stage that takes the longest for a micro-batch, forward and backward.
StageId slowest_stage(const PipelinePlan& plan);
/// Returns the time of the slowest stage as a multiple of the mean.
double imbalance(const PipelinePlan& plan);

/// Returns the stages of a program and their order, for reports. Requires a program with stages.
report::Pipeline pipeline_report(const Training& training);

}  // namespace sluice::train
