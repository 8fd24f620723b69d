#pragma once
#include <cstdint>
#include <vector>

#include "sluice/train/pipeline/schedule.h"

namespace sluice::train {

/// Times of a stage for one micro-batch, in seconds.
struct StageTimes {
  double forward = 0;   ///< Time of the forward task.
  double backward = 0;  ///< Time of the backward task.
  double message = 0;   ///< Time of the message to the next stage, and of the one back from it.
};

/// Times of a pipeline for all micro-batches, in seconds.
struct PipelineTimes {
  double total = 0;            ///< From the begin of the first task to the end of the last one.
  Ids<DeviceId, double> busy;  ///< Time in which each device runs tasks.
  double bubble = 0;           ///< Share of `total` in which a device with a stage waits: the mean.
  int64_t tasks = 0;           ///< Number of tasks that the simulation ran.
};

/// Simulates devices that run their tasks in the order of `order`. A device starts a task as soon
/// as the operands have arrived, and does not wait for anything else. Messages pass while devices
/// compute. A task needs a message from each stage of the step before its own. Between two stages
/// one message passes at a time in each direction, and none is needed if they share a device.
/// `stages` has the times of each stage; `devices` has the device of each stage, or is empty if
/// each stage has its own. The time of the micro-batches after the first 4,096 is extrapolated, so
/// that at most 6,144 micro-batches are simulated.
/// Error{kUsage} if `micro_batches` is below 1, a time is negative or not finite, or a vector does
/// not have an element for each stage.
PipelineTimes simulate_pipeline(const PipelineOrder& order, int64_t micro_batches,
                                const Ids<StageId, StageTimes>& stages,
                                const Ids<StageId, DeviceId>& devices = {});

}  // namespace sluice::train
